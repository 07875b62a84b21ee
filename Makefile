# make serve   install roseinfer the way users do, and serve the built-in model
# make check   lint, types and unit tests: under a minute on two cores
# make test    every test but those of test-zoo, test-real, test-deploy, test-docs, test-browser,
#              test-ray, test-versions and soak;
#              Triton's kernels run in its interpreter where there is no GPU
#
# Pass further arguments with ARGS: make serve ARGS="MODEL --port 9000", make test ARGS="-x tests/server".
# The README gives the plain commands behind serve and test.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --quiet --disable-pip-version-check
INSTALL := $(PIP) install --constraint constraints.txt
ON_ALL_CORES := --numprocesses=auto --dist=loadfile --no-loadscope-reorder
PYTEST := $(BIN)/python -m pytest $(ON_ALL_CORES)
ARGS ?=

PACKAGES := bench core schemas server
SOURCES := pyproject.toml README.md LICENSE \
	$(shell find $(PACKAGES) -type f -not -path '*/__pycache__/*')

KERNELS := $(wildcard core/kernels/cpu/source/*/*.cpp core/kernels/cpu/source/*/*.h)
UNIT := not slow and not triton and not real and not zoo and not soak and not docs and not deploy and not browser and not ray

.PHONY: serve check test test-unit test-slow test-triton test-compat test-gpu test-real test-zoo
.PHONY: test-deploy test-docs test-browser test-ray test-versions test-floor test-newest
.PHONY: site soak lint types format clean

serve: $(VENV)/.installed
	$(BIN)/roseinfer serve $(ARGS)

check: lint types test-unit

# The attacks come alone: beside other tests, which take the processors, they would last ten times as
# long, and their bars would be widened. What ARGS selects runs together.
test: $(VENV)/.installed-dev
ifeq ($(strip $(ARGS)),)
	$(PYTEST) --ignore=tests/bystander
	$(PYTEST) --numprocesses=0 tests/bystander
else
	$(PYTEST) $(ARGS)
endif

# The tests of make check: no server process, no Triton interpreter, nothing marked slow.
test-unit: $(VENV)/.installed-dev
	$(PYTEST) tests -m "$(UNIT)" $(ARGS)

test-slow: $(VENV)/.installed-dev
	$(PYTEST) -m slow $(ARGS)

test-triton: $(VENV)/.installed-dev
	$(PYTEST) tests -m triton $(ARGS)

# The official SDK and raw bytes against server processes.
test-compat: $(VENV)/.installed-dev
	$(PYTEST) compat_tests $(ARGS)

# Every model family of transformers, tiny, beside `generate`.
test-zoo: $(VENV)/.installed-dev
	$(PYTEST) --numprocesses=0 -m zoo $(ARGS)

# The page in headless Chromium, which must be installed (Debian: apt-get install chromium).
test-browser: $(VENV)/.installed-dev
	$(INSTALL) ".[browser]"
	$(PYTEST) --numprocesses=0 tests/browser -m browser $(ARGS)

# Replicas behind Ray Serve that are killed, replaced and overrun: some minutes, in an environment
# of its own. Writes the table of docs/several-machines.md.
test-ray: $(VENV)-ray/.installed
	$(VENV)-ray/bin/python -m pytest --numprocesses=0 tests/ray -m ray \
		--matrix-page docs/several-machines.md $(ARGS)

$(VENV)-ray/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-ray
	$(VENV)-ray/bin/pip install --quiet --disable-pip-version-check -c constraints.txt torch setuptools
	rm -rf build
	$(VENV)-ray/bin/pip install --quiet --disable-pip-version-check -c constraints.txt ".[dev,ray]"
	touch $@

# What depends on the release of transformers: the path of each model, the oracle, and a sample of
# the families. Each release has an environment that hides that of $(VENV) and shares all else.
RANGE := $(shell sed -n 's/^ *"\(transformers>=[^"]*\)".*/\1/p' pyproject.toml)
FLOOR := $(shell sed -n 's/^ *"transformers>=\([0-9.]*\).*/transformers-\1/p' pyproject.toml)
RELEASES := transformers-5.19.0 transformers-5.20.2 transformers-5.21.1 transformers-5.22.2 \
	transformers-5.23.0 torch-2.14.1
OF_RELEASES := $(wildcard tests/core/assembly/test_model_path.py) tests/core/engine/test_oracle.py \
	tests/core/models tests/core/proof tests/core/text/test_tokenizer_json.py tests/core/text/test_render.py \
	tests/core/load/test_config_files.py tests/zoo/test_zoo.py::test_a_sample_is_exact_or_refused
RELEASE := from importlib.metadata import version; print(version("transformers"))
PURE := import sysconfig; print(sysconfig.get_path("purelib"))

# Every minor release, and the next torch, which takes several gigabytes.
test-versions: test-floor $(RELEASES:%=test-with-%) test-newest

test-floor: test-with-$(FLOOR)

test-with-%: $(VENV)-with-%/.made
	$(<D)/bin/python -m pip install --quiet $(subst -,==,$*)
	$(<D)/bin/python -m pytest $(ON_ALL_CORES) $(OF_RELEASES)

test-newest: $(VENV)-with-newest/.made
	$(<D)/bin/python -m pip install --quiet --upgrade "$(RANGE)"
	@if test "$$($(<D)/bin/python -c '$(RELEASE)')" = "$$($(BIN)/python -c '$(RELEASE)')"; \
	then echo "skipped: the newest transformers is that of $(VENV)"; \
	else $(<D)/bin/python -m pytest $(ON_ALL_CORES) $(OF_RELEASES); fi

$(VENV)-with-%/.made: $(VENV)/.installed-dev
	$(PYTHON) -m venv --without-pip $(@D)
	$(BIN)/python -c '$(PURE)' > "$$($(@D)/bin/python -c '$(PURE)')/behind.pth"
	touch $@

.PRECIOUS: $(VENV)-with-%/.made

# Attacks beside bystanders, cuts, fuzzing: a quarter of an hour and more. Writes the table of
# docs/reliability.md. The machine must be otherwise quiet.
soak: $(VENV)/.installed-dev
	$(PYTEST) --numprocesses=0 tests/core/gguf compat_tests -m soak
	$(PYTEST) --numprocesses=0 tests/bystander -m soak \
		--reliability-page docs/reliability.md $(ARGS)

test-gpu: $(VENV)/.installed-dev
	$(PYTEST) --numprocesses=0 -m gpu $(ARGS)

# Real weights: downloads about 350 MB once, which stays in the user's cache. The second line runs
# what the default environment skips: it needs accelerate, or the gguf package to compare with.
test-real: $(VENV)/.installed-dev
	$(INSTALL) ".[real]"
	$(PYTEST) --numprocesses=0 tests/real -m real $(ARGS)
	$(PYTEST) --numprocesses=0 tests/core/assembly/test_mxfp4.py tests/core/gguf/test_values.py

# Installs into empty environments, checks deploy/ against schemas, drains and kills servers behind
# HAProxy, and lets Prometheus answer the dashboard's queries. A test whose program is missing is
# skipped: apt-get install haproxy prometheus.
test-deploy: $(VENV)/.installed-dev
	rm -rf build
	$(INSTALL) ".[deploy]" pipx uv
	$(PYTEST) --numprocesses=0 tests/deploy tests/packaging -m deploy $(ARGS)

# The site, and the programs of the documentation that start servers, need more packages or install
# into a clone. The package index that has just served the dependencies has these too, so what fails
# there is an error. npm's registry is another one: if it does not answer, the programs for Node are
# skipped with that reason.
test-docs: $(VENV)/.installed-dev $(VENV)-frameworks/.installed
	rm -rf build
	$(INSTALL) --no-build-isolation ".[docs]"
	$(PYTEST) --dist=loadgroup tests/docs compat_tests/test_snippets.py -m docs $(ARGS)

# Without Node's packages the target is not touched, so that the next run asks npm's registry
# again, and no other.
$(VENV)-frameworks/.installed: $(VENV)-frameworks/.python-packages
	rm -f $(VENV)-frameworks/no-node-packages
	if npm view openai@6.49.0 version > /dev/null; \
	then npm install --silent --no-fund --no-audit --prefix $(VENV)-frameworks \
		openai@6.49.0 ai@6.0.326 @ai-sdk/openai-compatible@2.0.91; \
	else echo "npm or its registry did not answer" > $(VENV)-frameworks/no-node-packages; fi
	test -e $(VENV)-frameworks/no-node-packages || touch $@

# pip knows indexes of the machine that uv does not.
$(VENV)-frameworks/.python-packages: docs/frameworks.txt
	$(PYTHON) -m venv $(VENV)-frameworks
	$(VENV)-frameworks/bin/pip install --quiet --disable-pip-version-check uv
	$(VENV)-frameworks/bin/uv pip install --quiet --python $(VENV)-frameworks/bin/python \
		-r docs/frameworks.txt \
		|| $(VENV)-frameworks/bin/pip install --quiet -r docs/frameworks.txt
	touch $@

# The documentation as a site, in site/. Fails on a link that leads nowhere.
site: $(VENV)/.installed-dev
	rm -rf build
	$(INSTALL) --no-build-isolation ".[docs]"
	$(BIN)/python -m docs.make_site $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/clang-format --dry-run -Werror $(KERNELS)

types: $(VENV)/.installed-dev
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(KERNELS)

clean:
	rm -rf $(VENV) $(VENV)-* site build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# setuptools packages whatever it finds in build/, so every installation removes it first.

# Install torch first and alone, in the newest release that the tests cover: the packages that
# depend on it then keep it. The last line installs roseinfer only to bring its dependencies.
$(VENV)/.dependencies: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch setuptools
	rm -rf build
	$(INSTALL) --no-build-isolation .
	touch $@

# Not editable: this installs what a user gets. Needs no network.
$(VENV)/.installed: $(VENV)/.dependencies $(SOURCES)
	rm -rf build
	$(PIP) install --no-deps --no-build-isolation .
	touch $@

# Adds the tools. Tests and linters read the working tree, not what is installed.
$(VENV)/.installed-dev: $(VENV)/.dependencies
	rm -rf build
	$(INSTALL) --no-build-isolation ".[dev]"
	touch $@

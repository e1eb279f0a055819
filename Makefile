# make install | test | test-some | test-all | mutants | audit | lint | docs | pages | dist | comparison | performance | atlas, with tools for development; release | ui without; compatibility
# The first of these that can make environments. The pins are one set for all three; CI tries the oldest.
VERSIONS := 3.11 3.12 3.13
PYTHON ?= $(shell for version in $(VERSIONS); do \
	python$$version -c 'import ensurepip, venv' 2>/dev/null && echo python$$version && break; done)
BIN := .venv/bin
PIP := $(BIN)/pip --quiet --disable-pip-version-check
export PIP_COMPILE := 0# what is imported is compiled then, which is a small part of what is installed
PINNED := --no-deps --require-hashes# complete, as .ci/pin makes them; pip check says where they are not
ONE_MORE := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))# workers: these tests wait for files, clocks and processes

FREE = $$(df --output=avail /dev/shm 2>/dev/null | tail -1)
MEMORY := $(shell test "$(FREE)" -gt 8000000 2>/dev/null && echo --tmpdir=/dev/shm)# 8 GB: tests sync thousands of files, 2 GB in all
SLOW = $(BIN)/python -m pytest -q -n $(ONE_MORE) --dist loadgroup --no-loadscope-reorder
APART := browser or faults or spark# browsers and Spark leave event loops and sockets open, which jobs would stumble over
IN_FOLDER = folder=$$(mktemp -d $(MEMORY)) && chmod 711 $$folder && trap "rm -rf $$folder" EXIT && TMPDIR=$$folder

# A dot every two seconds, at a terminal, while pip is silent.
DOTS = if [ -t 1 ]; then while sleep 2; do printf .; done & trap "kill $$!; echo" EXIT; fi;

.PHONY: install release ui test test-some test-all mutants audit lint docs pages comparison performance peers charts compatibility atlas dist translations

install: .venv/installed

.venv/installed-release: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Install Python 3.11, 3.12 or 3.13 with its module venv," \
		"such as: apt install python3 python3-venv. None of them is on the PATH."; exit 1; }
	@echo "Installing $$(grep -c == constraints.txt) packages into .venv: one to three minutes, once"
	$(PYTHON) -m venv .venv
	@$(DOTS) $(PIP) install $(PINNED) --only-binary :all: -r constraints.txt
	$(PIP) install --no-build-isolation --no-deps -e .
	$(PIP) check
	touch $@

.venv/installed: .venv/installed-release constraints-dev.txt
	@$(DOTS) $(PIP) install $(PINNED) --only-binary :all: -r constraints-dev.txt
	$(PIP) check
	$(BIN)/python -m od_core.warmup
	touch $@

.venv/installed-spark: .venv/installed constraints-spark.txt
	$(PIP) install $(PINNED) --no-build-isolation -r constraints-spark.txt
	$(PIP) check
	touch $@

# Two months, so that the report of the second shows what changed.
release: .venv/installed-release
	@echo "Releasing two months; the first run also compiles code, and takes a minute"
	$(BIN)/od-release run us_flights --period 2001-05
	$(BIN)/od-release run us_flights

ui: .venv/installed-release
	$(BIN)/od-release ui

test: install
	$(IN_FOLDER) $(BIN)/python -m pytest -q -n $(ONE_MORE) --dist worksteal -m "not slow" od_core tests

# Of each slow kind: every valid pair of options, a job of each kind of release, the distribution of each noise, a search for leaks, a soak, a page, a count;
# and all slow tests beside the fast ones, but those that are exhaustive.
SOME := tests/jobs/test_release_job.py::test_a_month_is_published_and_a_second_run_changes_nothing \
	tests/jobs/test_segment_job.py::test_each_level_draws_its_queries_once_and_all_checks_pass \
	tests/jobs/test_group_size_job.py::test_a_month_is_published_and_a_second_run_changes_nothing \
	tests/jobs/test_stops_job.py::test_a_month_is_published_and_a_second_run_changes_nothing \
	tests/jobs/test_series_of_rules.py::test_a_series_changes_its_rule_when_its_evidence_is_clear_and_keeps_it \
	tests/jobs/test_assisted.py::test_each_month_learns_from_the_months_before_and_spends_nothing \
	tests/jobs/test_cli_runs.py::test_run_publishes_reads_back_and_status_tells \
	tests/jobs/test_two_code_locations.py::test_both_release_and_verify_and_no_asset_has_two_locations \
	tests/jobs/test_upstream_assets.py::test_one_tick_after_a_new_partition_requests_the_release_and_the_dashboard \
	tests/matrix/test_matrix.py \
	tests/statistical/test_noise_law.py \
	tests/leaks/test_planted.py::test_a_month_that_is_published_refused_and_refused_again_holds_nothing_planted
SOME_APART := "tests/faults/test_soak.py::test_a_hundred_faults_damage_nothing_and_are_ended_by_running_again[sqlite]" \
	tests/browser/test_pages.py::test_a_page_of_the_bundle_is_read_from_the_file_alone \
	tests/spark/test_spark_counting.py::test_counts_are_those_of_duckdb

WHOLE := tests/od_core tests/od_assets# all their tests are imported to find the slow ones

test-some: .venv/installed-spark
	$(BIN)/python -m pytest --collect-only -qq tests $(WHOLE:%=--ignore=%) # also what is not run here imports what is there
	$(IN_FOLDER) $(SLOW) -m "slow and not exhaustive" $(SOME) $(WHOLE)
	$(IN_FOLDER) $(SLOW) $(SOME_APART)

# After the fast tests, the generated examples once more, many of them and others at every run; then the slow tests.
test-all: test .venv/installed-spark
	$(IN_FOLDER) $(SLOW) -m hypothesis --hypothesis-profile thorough tests/od_core tests/od_assets
	$(IN_FOLDER) $(SLOW) -m "slow and not ($(APART))" tests
	$(IN_FOLDER) $(SLOW) -m "$(APART)" tests

# Each planted defect of tests/mutants is found by its tests; for some only: .venv/bin/python -m tests.mutants --only TEXT
mutants: install
	$(IN_FOLDER) $(BIN)/python -m tests.mutants

# What neighbouring inputs change at every step of the rows of tests/matrix, against the sensitivities; two minutes
audit: install
	$(IN_FOLDER) $(BIN)/python -m tests.matrix.audit

lint: install
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# The wheel and the documentation of a tag: make dist, or make dist TAG=v0.2.0
TAG ?=
dist: install
	.ci/dist $(TAG)

pages: install # the tables of docs that follow from the code; a test fails where they do not
	$(BIN)/python docs/hooks.py

# The catalogs of all languages, with the messages of today; a test fails where one has no translation.
translations: install
	mkdir -p build
	$(BIN)/pybabel -q extract --mapping od_core/translations/babel.cfg --no-default-keywords --keywords "translate message" \
		--add-location file --no-wrap --output build/messages.pot od_core
	for catalog in od_core/translations/*.po; do $(BIN)/pybabel -q update --no-fuzzy-matching --ignore-obsolete --no-wrap \
		--input-file build/messages.pot --output-file $$catalog --locale $$(basename $$catalog .po) || exit 1; done

comparison: install # about 45 processor minutes, in which it goes on where it ended, and 2.2 hours for group sizes
	$(BIN)/od-release compare-mechanisms --to build/comparison
	cp build/comparison/*.svg docs/figures/comparison/
	cp build/comparison/comparison.parquet docs/reference/tables/
	$(BIN)/python -m benchmarks.published_group_sizes --seconds 400 \
		--csv docs/reference/tables --figures docs/figures/group-sizes

# Beside the last tag, or make performance AGAINST=COMMIT; for some cases only: ONLY=TEXT. 15 minutes on two idle cores.
AGAINST ?=
ONLY ?=
performance: install
	$(BIN)/python -m benchmarks.performance $(AGAINST:%=--against %) --only "$(ONLY)"

# The same flows by other software, each in an environment of its own. These packages have no wheels.
BUILT := pyspark,antlr4-python3-runtime,dp-mobility-report,pandarallel
build/peers/%/installed: benchmarks/peers/requirements/%.txt benchmarks/peers/requirements/building.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --quiet --disable-pip-version-check install $(PINNED) --only-binary :all: -r $(word 2,$^)
	$(@D)/bin/python -m pip --quiet --disable-pip-version-check install $(PINNED) --only-binary :all: --no-binary $(BUILT) --no-build-isolation -r $<
	touch $@

PEERS := opendp pipeline_dp inf_tda smartnoise_sql tumult dp_mobility_report
REAL_DATA := $(or $(OD_REAL_DATA),../shared/data)
# Those whose tables do not differ from another's in more than the noise are run on the flights alone.
ELSEWHERE := ours ours_totals ours_auto ours_bounded opendp_laplace pipeline_dp opendp_fixed opendp_mst opendp_aim \
	opendp_aim_levels inf_tda inf_tda_bounded smartnoise_sql smartnoise_sql_public tumult_laplace
peers: install $(PEERS:%=build/peers/%/installed)
	$(BIN)/python -m benchmarks.peers --csv docs/reference/tables
	$(BIN)/python -m benchmarks.peers --csv docs/reference/tables --epsilon 1 --runs 1 --contender $(ELSEWHERE) \
		--case norway taxis uk us_counties --data $(REAL_DATA)
	$(BIN)/python -m benchmarks.peers.user_level --csv docs/reference/tables --data $(REAL_DATA)

charts: install # of the measured results, from their CSV files
	$(BIN)/python docs/charts.py

compatibility:
	.ci/compatibility

# The pages of the atlas and of planning, from their sources; they are in the repository, so that nothing else needs Node.js.
atlas:
	cd atlas && npm ci --ignore-scripts --no-audit --no-fund && npm run build

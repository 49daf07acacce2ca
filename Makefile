# What a change must pass, from the quickest to all of it. In an environment made by: pip install -e '.[dev]'

.PHONY: lint format types quick test all nightly bench docs

lint:    ## style
	ruff check .
	ruff format --check .

format:  ## mends what lint says, where that can be done
	ruff check --fix .
	ruff format .

types:   ## mypy, strict, on the installed wheel, as users have it
	.ci/types

quick:   ## the tests that need no server, no Spark, no broken network and no browser: under two minutes on two cores
	pytest -n auto -m quick

test:    ## every test but the slow ones
	pytest -n auto

all:     ## everything that main must pass, in fresh environments
	.ci/run

nightly: ## the slow tests too, each case on each kind of server, and ten times the random examples
	FERRYMAN_NIGHTLY=1 pytest -n auto -m '' --timeout 7200

docs:    ## the documentation site, in build/site
	python -m sphinx -q -W --keep-going -c docs . build/site

bench:   ## the broker beside redis:// and beside other systems, the engines beside their limits
	python -m benchmarks.broker
	python -m benchmarks.live
	python -m benchmarks.engines
	python -m benchmarks.spark

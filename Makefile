# Each target is a script in scripts/ that can also be run alone.

.DEFAULT_GOAL := help
.PHONY: help perf test quick checked mutants promises mpi-test bench-mpi lint doc wheel deb setup install clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

perf: ## Measure messages beside what one would use instead; ARGS="..." for pinfold perf
	@scripts/perf.sh $(ARGS)

test: ## Run every check and every test, and count them
	@scripts/test.sh

quick: ## Run what takes a minute or two: formatting, rules, then clippy and unit tests of the crates that changed
	@scripts/quick.sh

checked: ## Run what takes long: Miri and AddressSanitizer, with a nightly Rust; Valgrind; unoptimised; AVX-512, in Bochs; AArch64, in qemu; packages; some mutants
	@scripts/test.sh miri asan valgrind unoptimised avx512 aarch64 package deb tenth

mutants: ## Take each check out of the sources, one at a time, and see a test fail; ARGS="--only AREA"
	@scripts/mutants.sh $(ARGS)

promises: ## Attack what is promised, add up what came of it; ARGS="--minutes N --only KIND --publish"
	@scripts/promises.sh $(ARGS)

mpi-test: ## Run mpi4py's suite over Pinfold under MPICH and Open MPI, and over libfabric's own; ARGS="--only NAME"
	@scripts/mpi-test.sh $(ARGS)

bench-mpi: ## Measure MPI over Pinfold beside its rivals; ARGS="--rounds N --only GROUP"
	@scripts/bench-mpi.sh $(ARGS)

lint: ## Check formatting, rules, examples, circles, the map, clippy and the documentation
	@scripts/setup.sh
	@scripts/fmt.sh
	@scripts/rules.sh
	@scripts/examples.sh
	@scripts/map.sh
	@scripts/circles.sh
	@scripts/clippy.sh
	@scripts/doc.sh

doc: ## Build the documentation of the library
	@scripts/setup.sh
	@scripts/doc.sh

wheel: ## Build the Python package's wheel, for CPython 3.9 and later
	@scripts/python.sh --wheel

deb: ## Make Debian packages of the command and of the C library, in target/deb
	@scripts/deb.sh

setup: ## Install what is missing to build and test
	@scripts/setup.sh

install: ## Install the C library, its header, pkg-config and CMake files below PREFIX (/usr/local)
	@scripts/install.sh

clean: ## Remove everything that was built
	cargo clean

# Every task a person runs, a line of help each: `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run build static test check lint fmt unit components lab-components lab-components-patch lab-components-earlier lab-able lab-up lab-down lab-status lab-exec lab-probe e2e-smoke e2e-nodes e2e-nodes-full e2e-far e2e-system bench-nodes e2e-hci conformance generate bench sim trials soak-sim fuzz advisories clean

TOOLS := $(or $(AFLOAT_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/afloat)/tools/bin
export PATH := $(TOOLS):$(PATH)
HOST_TARGET = $(shell rustc --version --verbose | sed -n 's/^host: //p')

# Tests that make whole machines have targets of their own.
NO_MACHINES = not (package(afloat-e2e) and kind(test))
LAB_RUN = cargo run --quiet --package afloat-lab --bin lab -- --name $(or $(LAB),main)

# The afloat that is tested is the one that is shipped, one file that needs nothing of its machine: built first, unless AFLOAT_STATIC names one.
STATIC = $(abspath $(or $(CARGO_TARGET_DIR),target))/$(HOST_TARGET)/static/afloat
E2E_NEEDS = lab-able lab-components $(if $(AFLOAT_STATIC),,static)
# One table of all nodes of a run, printed at its end. Labs of a run that was killed end with it, and so do those of any other run that goes on beside it
# on this machine: one at a time.
TABLE = $(abspath $(or $(CARGO_TARGET_DIR),target))/e2e-table.txt
E2E = rm -f "$(TABLE)"; trap 'cat "$(TABLE)" 2>/dev/null; $(LAB_RUN) down --beginning e2e-' EXIT; AFLOAT_E2E_TABLE="$(TABLE)" AFLOAT_STATIC="$(or $(AFLOAT_STATIC),$(STATIC))" cargo nextest run --package afloat-e2e --no-capture

help: ## List the tasks
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## Upgrade a sandbox cluster in place before your eyes (ARGS="--once" prints it and ends, ARGS="--serve" keeps it up)
	@tools/ensure cargo cc
	@cargo run --quiet --release --package afloat-cli --bin afloat -- sandbox $(ARGS)

build: ## Build the afloat binary (target/release/afloat)
	@tools/ensure cargo cc
	cargo build --release --package afloat-cli

static: ## Build afloat as one file that runs on any Linux machine and in an empty image (5 to 8 minutes on 2 cores)
	@tools/ensure cargo cc
	RUSTFLAGS='-C target-feature=+crt-static' cargo build --profile static --target $(HOST_TARGET) --package afloat-cli
	@echo "$(STATIC)"

test: ## Everything that must hold: lints, licences, tests, real components, conformance (8 minutes; 20 with nothing compiled, 35 on a new machine)
	@tools/ensure cargo cc go setpriv nextest deny docker-registry
	cargo fmt --all --check
	cargo deny --log-level error check bans licenses sources
	cargo xtask components
	cargo clippy --workspace --all-targets -- -D warnings
	cargo nextest run --workspace --filterset '$(NO_MACHINES)'

check: lint unit ## The quick half of `test`: lints and the tests that need no real components (12 minutes)

lint: ## Formatting, clippy, licences
	@tools/ensure cargo cc deny
	cargo fmt --all --check
	cargo deny --log-level error check bans licenses sources
	cargo clippy --workspace --all-targets -- -D warnings

fmt: ## Format the code
	cargo fmt --all

unit: ## Tests that need nothing but Rust
	@tools/ensure cargo cc nextest
	cargo nextest run --workspace --exclude afloat-conformance --exclude afloat-realparts --filterset 'not binary(real_registry) and not binary(real_upgrade) and not binary(hci_real) and not binary(install) and $(NO_MACHINES)'

components: ## Build the real etcd, kube-apiserver, kubectl, helm, ... into the cache, and bring the kinds of others (15 minutes, once)
	@tools/ensure cargo cc go
	cargo xtask components

lab-components: ## Build what the lab's machines run too: kubelet, kubeadm, containerd, ... in two versions (25 minutes, once)
	@tools/ensure cargo cc go seccomp
	cargo xtask components --set lab

lab-components-patch: ## The same, and a patch release between the two versions (10 minutes more, once)
	@tools/ensure cargo cc go seccomp
	cargo xtask components --set patch

lab-components-earlier: ## The same, and the minor before the two versions (10 minutes more, once)
	@tools/ensure cargo cc go seccomp
	cargo xtask components --set earlier

lab-able:
	@tools/ensure cargo cc lab
	@$(LAB_RUN) able

lab-up: lab-able lab-components ## Make real kubeadm machines here (CONTROL_PLANES=3 WORKERS=2 VERSION=v1.35.4 SYSTEMS=one LAB=main; as root)
	@$(LAB_RUN) up --control-planes $(or $(CONTROL_PLANES),3) --workers $(or $(WORKERS),2) --version $(or $(VERSION),v1.35.4) --systems $(or $(SYSTEMS),one)

lab-down: ## End them, and everything they started (ARGS=--all for all labs)
	@$(LAB_RUN) down $(ARGS)

lab-status: ## Which labs and machines there are, and their nodes
	@$(LAB_RUN) status

lab-exec: ## Run something inside a machine (NODE=cp-1 CMD="journalctl -u kubelet")
	@$(LAB_RUN) exec $(or $(NODE),cp-1) -- bash -c '$(or $(CMD),exec bash -l)'

lab-probe: ## Count failed requests from everywhere for SECONDS=30
	@$(LAB_RUN) probe --seconds $(or $(SECONDS),30)

e2e-smoke: $(E2E_NEEDS) ## One real control-plane node upgraded in place by Afloat, installed from its manifests (3 minutes, and 5 to 8 to build it; as root)
	@tools/ensure nextest
	$(E2E) --test smoke

e2e-nodes: $(E2E_NEEDS) ## Three control planes and two workers upgraded while an operator dies and a machine reboots, requests counted; one node alone; kubeadm failing once (25 minutes; as root)
	@tools/ensure nextest
	$(E2E) --test smoke --test nodes

e2e-nodes-full: $(E2E_NEEDS) lab-components-patch ## The same, every other fault, and a person who holds and ends: registry away, disk full, damaged files, parts that never come up; a patch release after the minor; planted secrets looked for; e2e-system (120 minutes; as root)
	@tools/ensure nextest
	$(E2E) -E 'not binary(far)'

e2e-far: $(E2E_NEEDS) lab-components-earlier ## Three control planes and a worker two minors up, v1.34.4 to v1.36.3, requests counted (20 minutes; as root)
	@tools/ensure nextest
	$(E2E) --test far

e2e-system: $(E2E_NEEDS) ## The operating system of a real node replaced as a whole by the task of Harvester's Job: its power cut meanwhile, kept, put back, and a broken one fallen back from (8 minutes; as root)
	@tools/ensure nextest
	$(E2E) --test system

bench-nodes: $(E2E_NEEDS) ## The same upgrade by hand and by Afloat's two ways: a table, and JSON in target/bench-nodes.json (40 minutes; ARGS="--ways by-hand,swift"; as root)
	trap '$(LAB_RUN) down --beginning e2e-' EXIT; AFLOAT_STATIC="$(or $(AFLOAT_STATIC),$(STATIC))" cargo run --quiet --package afloat-e2e --bin bench-nodes -- --output "$(or $(CARGO_TARGET_DIR),target)/bench-nodes.json" $(ARGS)

e2e-hci: ## Three nodes of a Harvester-like cluster on a real kube-apiserver with the kinds of their owners and a real helm, with kubectl as the person (3 minutes; also part of make test)
	@tools/ensure cargo cc go setpriv nextest
	cargo xtask components
	cargo nextest run --package afloat-cli --test hci_real --no-capture

conformance: ## Compare the embedded API server with the real one (ARGS="--sequences 5000" for more)
	@tools/ensure cargo cc go setpriv
	cargo xtask components
	cargo run --quiet --package afloat-conformance --bin conformance -- $(ARGS)

generate: ## Write the CRDs and the reference docs from the types
	cargo xtask generate

bench: ## Measure the embedded API server, the core's decisions, and whole upgrades of 10 to 5,000 nodes, also on a real API server (long; BENCH="--most 100" for small clusters only; tables, and JSON in target/bench.json)
	@tools/ensure cargo cc go setpriv
	cargo xtask components
	cargo run --profile dist --package afloat-conformance --bin bench -- $(ARGS)
	cargo run --profile dist --package afloat-bench --bin decisions
	cargo build --profile dist --package afloat-cli
	cargo run --profile dist --package afloat-bench --bin bench-upgrades -- --afloat "$(or $(CARGO_TARGET_DIR),target)/dist/afloat" $(BENCH)

sim: ## Try to break simulated upgrades by seed (SEEDS=10000, or one again with its trace: SEED=7 SCENARIO=ha; ARGS="--systematic"; ARGS="--hci" for Harvester-like clusters; PROFILE=dist for many)
	@tools/ensure cargo cc
	@cargo run --quiet --profile $(or $(PROFILE),release) --package afloat-seeds --bin sim -- $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),10000)) $(if $(SCENARIO),--scenario $(SCENARIO)) $(ARGS)

trials: ## The real operator on simulated clusters, a process a seed (SEEDS=100, or one again with every write: SEED=7 ARGS="--trace")
	@tools/ensure cargo cc
	@cargo run --quiet --profile $(or $(PROFILE),release) --package afloat-trials -- $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),100)) $(ARGS)

soak-sim: ## The same for HOURS=1, then a crash after every write from views of every age
	@tools/ensure cargo cc
	@cargo run --quiet --profile $(or $(PROFILE),release) --package afloat-seeds --bin sim -- --hours $(or $(HOURS),1) $(ARGS)
	@cargo run --quiet --profile $(or $(PROFILE),release) --package afloat-seeds --bin sim -- --systematic --every $(ARGS)

fuzz: ## Send the embedded API server hostile requests (MINUTES=10, AFLOAT_FUZZ_SEED=7 to repeat)
	@tools/ensure cargo cc
	AFLOAT_FUZZ_SECONDS=$$(( $(or $(MINUTES),10) * 60 )) cargo test --release --package afloat-apisim --test hostile -- --nocapture

advisories: ## Check dependencies against the advisory database (needs access to it)
	@tools/ensure cargo deny
	cargo deny check advisories

clean: ## Remove what was built here (the cache of components stays)
	cargo clean

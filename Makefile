# Every command there is. `make` alone lists them.
.DEFAULT_GOAL := help

MODULES  := . services/ingest services/dispatcher
PACKAGES := ./... ./services/ingest/... ./services/dispatcher/...
BIN      := $(CURDIR)/.bin
COUNT    ?= 10

# A checkout that belongs to somebody else must build too; Git would refuse to describe it.
export GOFLAGS := $(strip $(filter-out -buildvcs=%,$(GOFLAGS)) -buildvcs=false)

# The race detector needs a C compiler. CI must have one (RACE=-race); elsewhere its lack is said aloud.
ifndef RACE
RACE := $(shell command -v "$$(go env CC 2>/dev/null)" >/dev/null 2>&1 && echo -race)
endif
TEST := go test $(RACE) -shuffle=on -timeout=15m

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  \033[1m%-15s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- run it ---

.PHONY: up
up: ## PostgreSQL, ingest and dispatcher on this machine, with the sample apps; safe to repeat
	@scripts/up.sh

.PHONY: down
down: ## Stop what `make up` started (its data stays; `make clean` deletes it)
	@scripts/down.sh

.PHONY: build
build: ## ingest, dispatcher and tocsin into bin/
	@mkdir -p bin
	go build -trimpath -o bin/ ./cmd/tocsin ./services/ingest ./services/dispatcher

.PHONY: clean
clean: down ## Stop everything and delete bin/ and .local/, the local database with it
	@for home in .local/*/home; do [ ! -f "$$home" ] || scripts/postgres.sh destroy "$${home%/home}"; done
	rm -rf bin .local

# --- check it ---

.PHONY: test
test: race-note ## Every test there is: race detector, own PostgreSQL, end to end with the real binaries
	scripts/with-postgres.sh $(TEST) work

.PHONY: check
check: fmt-check vet arch test ## What must pass before every commit (needs no tools)

.PHONY: ci
ci: test static ## What must pass before main moves

.PHONY: static
static: fmt-check vet arch lint generate-check tidy-check ## What can be checked without running the system

.PHONY: e2e
e2e: race-note ## Only the end-to-end tests
	scripts/with-postgres.sh $(TEST) -count=1 ./e2e/...

CHAOS_MINUTES ?= 5

.PHONY: chaos
chaos: race-note ## Faults for CHAOS_MINUTES against the real binaries, judged; CHAOS_SEED=n plays a round again
	CHAOS_MINUTES=$(CHAOS_MINUTES) CHAOS_SEED=$(CHAOS_SEED) scripts/with-postgres.sh \
	  go test $(RACE) -count=1 -timeout=60m -v -run='^TestChaos|IsCaught$$' ./e2e/...

# BENCH names scenarios or figures (`make bench BENCH="ingest wake-p99"`); none means all, which takes about an hour.
BENCH ?=

.PHONY: bench
bench: ## Tocsin beside its peers on a durable PostgreSQL: BENCH=names, BENCH_ROUNDS, BENCH_SECONDS; writes docs/benchmarks/
	cd bench && GOWORK=off go run . $(BENCH)

.PHONY: profile
profile: ## CPU, heap, block and mutex profiles of ingest and dispatcher under the benchmarks' load
	cd bench && GOWORK=off go run . -profile

.PHONY: microbench
microbench: ## The packages' own benchmarks, COUNT runs each, ready for benchstat (microbench.out)
	scripts/with-postgres.sh --durable go test -run='^$$' -bench=. -benchmem -count=$(COUNT) work | tee microbench.out

.PHONY: fuzz
fuzz: ## Every fuzz target for FUZZTIME each
	scripts/fuzz.sh

.PHONY: test-db
test-db: ## Start a throw-away PostgreSQL that stays, print its URL: for TOCSIN_TEST_DATABASE_URL
	@scripts/postgres.sh start .local/test-db --throwaway

.PHONY: race-note
race-note:
	@[ -n "$(RACE)" ] || echo "no C compiler found: testing without the race detector (install gcc or clang to have it)" >&2

.PHONY: fmt
fmt: tool-golangci-lint ## Format Go files
	$(BIN)/golangci-lint fmt $(PACKAGES)

.PHONY: fmt-check
fmt-check: ## Are the Go files formatted?
	@files=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l) && \
	  test -z "$$files" || { echo "run make fmt:" >&2; echo "$$files" >&2; exit 1; }

.PHONY: vet
vet: ## go vet, all modules
	go vet work

.PHONY: arch
arch: ## Dependencies point one way (uncached: it reads the whole tree)
	go test -count=1 ./internal/archtest

.PHONY: lint
lint: tool-golangci-lint ## golangci-lint, all modules
	$(BIN)/golangci-lint run $(PACKAGES)

# --- keep it ---

.PHONY: generate
generate: tool-sqlc ## Regenerate what sqlc writes
	$(BIN)/sqlc generate

.PHONY: generate-check
generate-check: tool-sqlc ## Does the committed sqlc output match db/?
	$(BIN)/sqlc diff

.PHONY: migration
migration: ## The next pair of migrations: make migration NAME=add_something
	@scripts/migration.sh "$(NAME)"

.PHONY: tidy
tidy: ## go mod tidy, all modules
	@for module in $(MODULES) tools; do (cd $$module && GOWORK=off go mod tidy) || exit 1; done
	go work sync

.PHONY: tidy-check
tidy-check: ## Is every go.mod tidy?
	@for module in $(MODULES); do (cd $$module && GOWORK=off go mod tidy -diff) || \
	  { echo "run make tidy ($$module/go.mod)" >&2; exit 1; }; done

.PHONY: tool-golangci-lint tool-sqlc
tool-golangci-lint tool-sqlc: tool-%:
	@scripts/tool.sh $*

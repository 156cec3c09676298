# Rowlock. `make` alone lists what there is.

GO        ?= go
BIN       := bin/ledger
MODE      ?=
ROUNDS    ?= 1
BENCHTIME ?= 1s
FUZZTIME  ?= 60s

# -race needs cgo, and cgo a C compiler.
export CGO_ENABLED = 1

.DEFAULT_GOAL := help
.PHONY: help build run test test-containers race faults faults-long fuzz lint generate bench bench-full benchmarks compiler clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build bin/ledger
	@CGO_ENABLED=0 $(GO) build -o $(BIN) ./cmd/ledger

run: build ## Serve on 127.0.0.1:8080 with a PostgreSQL server of its own (ARGS="--mode atomic" adds flags)
	@exec $(BIN) serve $(ARGS)

test: build compiler ## Run all tests, the race suite included, against a PostgreSQL server of their own
	$(BIN) postgres -- $(GO) test -race -timeout 30m ./...

test-containers: build compiler ## Run the race suite against PostgreSQL in a container
	tests/containers/run.sh $(GO) test -race -timeout 30m ./internal/testdb ./tests/race

race: build compiler ## Run the race suite (MODE=none shows the loss; ROUNDS=10 repeats it)
	$(BIN) postgres -- $(GO) test -race -v -count=1 -timeout 60m ./tests/race -args -mode=$(MODE) -rounds=$(ROUNDS)

faults: build compiler ## Break things under load, and count what is lost (ROUNDS=30; REPORT=docs/reliability.md writes the table)
	$(BIN) postgres -- $(GO) test -race -v -count=1 -timeout 60m ./tests/fault -args -rounds=$(or $(filter-out 1,$(ROUNDS)),30) $(if $(REPORT),-report=$(abspath $(REPORT)))

faults-long: build compiler fuzz ## The same for hours, after a minute of fuzzing for each target
	$(BIN) postgres -- $(GO) test -race -v -count=1 -timeout 0 ./tests/fault -args -rounds=1000 $(if $(REPORT),-report=$(abspath $(REPORT)))

fuzz: ## Fuzz every target for FUZZTIME (60s)
	@grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z]+' internal | sed 's|/[^/]*:func | |' | while read -r package target; do \
	  echo "$$target in $$package"; \
	  $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "./$$package" </dev/null || exit 1; \
	done

lint: ## Check format, vet, staticcheck, go.mod and generated code
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "not gofmt'ed:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) mod tidy -diff
	$(GO) generate ./...
	@git diff --exit-code -- client || { echo "go generate left a difference: commit it"; exit 1; }

generate: ## Generate the Go client from api/openapi.yaml
	$(GO) generate ./...

bench: build ## Measure the service: modes, groups and base in the same rounds; bin/bench.html has the charts
	$(BIN) bench compare --modes pessimistic,atomic --group-sizes 1,default --workloads uniform,hot \
	  --clients 1,64,256 --rounds 3 --warmup 500ms --duration 5s --html bin/bench.html

bench-full: build ## The whole grid, 5,000,000 rows, ten minutes of memory; goes on where it was interrupted
	$(BIN) bench compare --rounds 3 --share 0.5 --results bin/bench.jsonl --html bin/bench-full.html --charts bin/charts
	$(BIN) bench compare --modes pessimistic --group-sizes default --workloads uniform,locked --clients 64 --rounds 3 --results bin/bench.jsonl
	$(BIN) bench compare --modes pessimistic --group-sizes default --workloads uniform --clients 64 --preload 0,5000000 \
	  --warmup 3s --duration 15s --rounds 3 --results bin/bench.jsonl
	$(BIN) bench run --clients 256 --duration 10m --results bin/bench.jsonl

benchmarks: build ## Run every Go benchmark for BENCHTIME (1x: once, to see that it works)
	$(BIN) postgres -- $(GO) test -run '^$$' -bench . -benchtime $(BENCHTIME) ./...

compiler:
	@command -v "$${CC:-cc}" >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1 || { \
	  echo "The race detector needs a C compiler, and there is none. On Debian and Ubuntu: apt-get install gcc libc6-dev"; exit 1; }

clean: ## Remove what was built
	rm -rf bin

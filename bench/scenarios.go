package main

import "github.com/tocsin-dev/tocsin/bench/internal/peers"

// The bounds are those of issue 8's table; a figure without bounds is only shown.
func scenarios() []scenario {
	return []scenario{
		{
			name: "ingest",
			sides: []side{
				{"tocsin http", httpIngest("plain", 64, kib)}, {"river insert", riverInsert},
				{"raw batched", rawBatched(peers.BatchPlain)}, {"raw batched bytes", rawBatched(peers.BatchBytes)},
			},
			figures: []figure{
				{
					id: "ingest-http", text: "durable events/s over HTTP, 64 connections, 1 KiB, hookless ÷ River Insert from 64 goroutines",
					metric: "rate", of: "tocsin http", to: "river insert", goal: 8, fail: 4,
				},
				{
					id: "ingest-limit", text: "the same ÷ raw batched inserts without HTTP (one plain table with jsonb, a bell a batch)",
					metric: "rate", of: "tocsin http", to: "raw batched", goal: .6, fail: .3,
				},
				{
					id: "ingest-bytes", text: "the same ÷ raw batched inserts of bytes that nobody looks at, into two bare tables",
					metric: "rate", of: "tocsin http", to: "raw batched bytes",
				},
				{
					id: "notifications", text: "notifications per 1,000 calls at full load",
					metric: "notifications", of: "tocsin http", lower: true, goal: 50, fail: 200,
				},
				{
					id: "memory-ingest", text: "RSS of ingest at full load, 64 connections, hookless, MiB",
					metric: "rss", of: "tocsin http", lower: true, goal: 48, fail: 96,
				},
			},
		},
		{
			name:  "ingest-github",
			sides: []side{{"tocsin http", httpIngest("plain", 64, github)}, {"river insert", riverInsertGitHub}},
			figures: []figure{
				{id: "github", text: "real GitHub deliveries over HTTP, 64 connections, hookless ÷ River Insert of the same", metric: "rate", of: "tocsin http", to: "river insert"},
			},
		},
		{
			name:  "half-peak",
			sides: []side{{"tocsin http", httpHalfPeak}, {"bare commit", bareHalfPeak}},
			figures: []figure{
				{
					id: "latency-half", text: "p99 latency of such a call at half the peak rate ÷ p99 of a bare single-row commit at the same rate",
					metric: "p99", of: "tocsin http", to: "bare commit", lower: true, goal: 2, fail: 4,
				},
			},
		},
		{
			name:  "quiet-caller",
			sides: []side{{"tocsin http", httpQuiet}, {"bare commit with NOTIFY", bareQuiet}},
			figures: []figure{
				{
					id: "latency-quiet", text: "one quiet caller (a call each 10 ms): median latency ÷ a bare single-row commit with NOTIFY",
					metric: "p50", of: "tocsin http", to: "bare commit with NOTIFY", lower: true, goal: 1.5, fail: 2.5,
				},
			},
		},
		{
			name:  "drain-http",
			sides: []side{{"tocsin", drainHTTP}, {"river tuned", riverDrainHTTP}},
			figures: []figure{
				{
					id: "drain-http", text: "drain of a 200k backlog over 1,000 subscriptions through a local HTTP engine, one dispatcher ÷ River tuned with a worker that makes the same HTTP call",
					metric: "rate", of: "tocsin", to: "river tuned", goal: 3.5, fail: 2,
				},
				{
					id: "memory-dispatcher", text: "RSS of the dispatcher at full load, HTTP engine, MiB",
					metric: "rss", of: "tocsin", lower: true, goal: 48, fail: 96,
				},
			},
		},
		{
			name:  "drain-embedded",
			sides: []side{{"tocsin", drainEmbedded(spread)}, {"river tuned", riverDrain(200_000)}, {"tocsin, ledger alone", drainLedger}},
			figures: []figure{
				{
					id: "drain-embedded", text: "the same with the embedded engine ÷ River tuned with a no-op worker",
					metric: "rate", of: "tocsin", to: "river tuned", goal: 7, fail: 4,
				},
				{
					id: "memory-embedded", text: "RSS of the dispatcher at full load, embedded engine, MiB",
					metric: "rss", of: "tocsin", lower: true, goal: 48, fail: 96,
				},
				{id: "drain-ledger", text: "claim and settle in this process, no engine ÷ River tuned with a no-op worker", metric: "rate", of: "tocsin, ledger alone", to: "river tuned"},
			},
		},
		{
			name:  "flow",
			sides: []side{{"tocsin", flow(false)}, {"river tuned", riverFlow}, {"tocsin over http", flow(true)}},
			figures: []figure{
				{
					id: "flow", text: "in and out together through the embedded engine, 64 callers in the process ÷ River tuned (insert and no-op work)",
					metric: "rate", of: "tocsin", to: "river tuned", goal: 8, fail: 4,
				},
				{id: "flow-http", text: "the same, the callers over HTTP", metric: "rate", of: "tocsin over http", to: "river tuned", goal: 8, fail: 4},
			},
		},
		wake(20), wake(100),
		{
			name:  "history",
			sides: []side{{"with history", drainHistory(true)}, {"empty table", drainHistory(false)}},
			figures: []figure{
				{
					id: "history", text: "drain rate with 10 M events of history (BENCH_HISTORY) ÷ at an empty table",
					metric: "rate", of: "with history", to: "empty table", goal: .9, fail: .75,
				},
			},
		},
		{
			name:  "snapshot",
			sides: []side{{"held", drainHeld(true)}, {"free", drainHeld(false)}},
			figures: []figure{
				{
					id: "snapshot", text: "drain rate while a snapshot older than the backlog is held open ÷ without",
					metric: "rate", of: "held", to: "free", goal: .7, fail: .4,
				},
			},
		},
		{
			name:  "dispatchers",
			sides: []side{{"four", drainSlow(4)}, {"one", drainSlow(1)}},
			figures: []figure{
				{
					id: "dispatchers", text: "four dispatchers ÷ one, engine of 20 ms per start, 16 starts at once each",
					metric: "rate", of: "four", to: "one", goal: 3.5, fail: 2.5,
				},
			},
		},
		{
			name:  "handle-ingest",
			sides: []side{{"handleIngest", httpIngest("identity", 64, kib)}, {"hookless", httpIngest("plain", 64, kib)}},
			figures: []figure{
				{
					id: "handle-ingest", text: "trivial handleIngest ÷ hookless, calls/s",
					metric: "rate", of: "handleIngest", to: "hookless", goal: .4, fail: .2,
				},
			},
		},
		{
			name: "verify",
			sides: []side{
				{"verify", httpIngest("verified", 64, signed10)}, {"hookless", httpIngest("plain", 64, signed10)}, {"whole preset", httpIngest("github", 64, signed10)},
			},
			figures: []figure{
				{
					id: "verify", text: "host-side verify (GitHub preset, 10 KiB body) ÷ hookless without it, calls/s",
					metric: "rate", of: "verify", to: "hookless", goal: .85, fail: .6,
				},
				{id: "preset", text: "the whole GitHub preset, dedup by delivery id too ÷ hookless", metric: "rate", of: "whole preset", to: "hookless"},
			},
		},
		{
			name:  "hot",
			sides: []side{{"tocsin", drainEmbedded(hot)}, {"river tuned", riverDrain(100_000)}},
			figures: []figure{
				{
					id: "hot", text: "one hot subscription with 100k due events, embedded engine ÷ River tuned, no-op",
					metric: "rate", of: "tocsin", to: "river tuned", goal: 1.5, fail: .8,
				},
			},
		},
		{
			name:  "idle",
			sides: []side{{"4 dispatchers", idle}},
			figures: []figure{
				{
					id: "idle", text: "idle cost: transactions a second at PostgreSQL from 4 idle dispatchers",
					metric: "queries", of: "4 dispatchers", lower: true, goal: 8, fail: 20,
				},
			},
		},
		{
			name: "peers",
			sides: []side{
				{"tocsin, ledger alone", storeInsert}, {"river insert", riverInsert}, {"river InsertMany, 2×500", riverMany(false)},
				{"river InsertManyFast, 2×500", riverMany(true)}, {"gue insert", gueInsert}, {"dbos enqueue", dbosInsert},
				{"graphile-worker addJob", node("graphile-worker")}, {"pg-boss send", node("pg-boss")},
				{"single-row commits", rawSingle(false)}, {"single-row commits with NOTIFY", rawSingle(true)},
				{"raw batched", rawBatched(peers.BatchPlain)}, {"raw batched bytes", rawBatched(peers.BatchBytes)}, {"raw COPY of bytes", rawBatched(peers.BatchCopy)},
			},
			figures: []figure{
				{id: "ledger-river", text: "durable ingest in the process, 64 callers, 1 KiB ÷ River Insert", metric: "rate", of: "tocsin, ledger alone", to: "river insert"},
				{id: "ledger-gue", text: "the same ÷ gue", metric: "rate", of: "tocsin, ledger alone", to: "gue insert"},
				{id: "ledger-dbos", text: "the same ÷ DBOS", metric: "rate", of: "tocsin, ledger alone", to: "dbos enqueue"},
				{id: "ledger-graphile", text: "the same ÷ graphile-worker", metric: "rate", of: "tocsin, ledger alone", to: "graphile-worker addJob"},
				{id: "ledger-pgboss", text: "the same ÷ pg-boss", metric: "rate", of: "tocsin, ledger alone", to: "pg-boss send"},
				{id: "ledger-many", text: "the same ÷ River InsertManyFast in slices of 500", metric: "rate", of: "tocsin, ledger alone", to: "river InsertManyFast, 2×500"},
				{id: "ledger-single", text: "the same ÷ single-row commits", metric: "rate", of: "tocsin, ledger alone", to: "single-row commits"},
				{id: "ledger-notify", text: "the same ÷ single-row commits with NOTIFY", metric: "rate", of: "tocsin, ledger alone", to: "single-row commits with NOTIFY"},
				{id: "ledger-limit", text: "the same ÷ raw batched inserts", metric: "rate", of: "tocsin, ledger alone", to: "raw batched"},
			},
		},
		{
			name: "peers-drain",
			sides: []side{
				{"tocsin", drainEmbedded(spread)}, {"river defaults", riverDrainDefault}, {"gue", gueDrain}, {"dbos", dbosDrain},
			},
			figures: []figure{
				{id: "drain-river", text: "drain, embedded engine ÷ River at its defaults", metric: "rate", of: "tocsin", to: "river defaults"},
				{id: "drain-gue", text: "the same ÷ gue", metric: "rate", of: "tocsin", to: "gue"},
				{id: "drain-dbos", text: "the same ÷ DBOS", metric: "rate", of: "tocsin", to: "dbos"},
			},
		},
	}
}

// wake is the latency from commit to start at a rate.
func wake(rate int) scenario {
	s := scenario{
		name:  map[int]string{20: "wake-20", 100: "wake-100"}[rate],
		sides: []side{{"tocsin", wakeTocsin(rate)}, {"river tuned", wakeRiver(rate, true)}, {"river defaults", wakeRiver(rate, false)}},
	}
	s.figures = []figure{
		{
			id: s.name + "-tuned", text: "commit → engine called, median ÷ River tuned, insert → worked",
			metric: "p50", of: "tocsin", to: "river tuned", lower: true, goal: .5, fail: 1,
		},
		{
			id: s.name + "-default", text: "the same ÷ River at its defaults",
			metric: "p50", of: "tocsin", to: "river defaults", lower: true, goal: .03, fail: .1,
		},
	}
	if rate == 100 {
		s.figures = append(s.figures, figure{
			id: "wake-p99", text: "commit → claimed, p99 at 100/s (measured to the engine's being called, which is later), ms",
			metric: "p99", of: "tocsin", lower: true, goal: 5, fail: 20,
		})
	}
	return s
}

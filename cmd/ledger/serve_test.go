package main

import (
	"log/slog"
	"testing"
	"time"

	"github.com/rowlock/ledger/internal/telemetry"
)

// Whatever a body and its request may take together, the answer still goes out.
func TestTheServerWaitsForItsHandlers(t *testing.T) {
	for _, request := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		flags := defaults()
		flags.RequestTimeout = request
		s := &service{cmd: &serveCmd{serviceFlags: flags}, metrics: telemetry.NewMetrics(), logger: slog.New(slog.DiscardHandler)}
		server := s.newServer(nil)
		if server.ReadHeaderTimeout <= 0 || server.IdleTimeout <= 0 || server.MaxHeaderBytes <= 0 || server.MaxHeaderBytes > 64<<10 {
			t.Errorf("a slow or greedy client is not bounded: %+v", server)
		}
		if got, least := server.WriteTimeout, server.ReadHeaderTimeout+2*request; got <= least {
			t.Errorf("request timeout %v: write timeout %v, want more than %v", request, got, least)
		}
	}
}

func TestAStopThatCutsRequestsIsRefused(t *testing.T) {
	c := serveCmd{serviceFlags: defaults(), StopTimeout: 15 * time.Second}
	if err := c.checkStop(); err != nil {
		t.Errorf("the defaults: %v, want nil", err)
	}
	for _, c := range []serveCmd{
		{serviceFlags: defaults(), StopTimeout: time.Second},
		{serviceFlags: defaults(), StopTimeout: 15 * time.Second, ShutdownDelay: -time.Second},
	} {
		if err := c.checkStop(); err == nil {
			t.Errorf("stop timeout %v, shutdown delay %v: error = nil, want one", c.StopTimeout, c.ShutdownDelay)
		}
	}
}

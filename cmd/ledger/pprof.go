package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// serveProfiles serves Go's profiles on a loopback address of their own: they
// show what is in memory.
func serveProfiles(address string, logger *slog.Logger) (stop func() error, err error) {
	if err := checkListen("--pprof-addr", address, false); err != nil {
		return nil, fmt.Errorf("profiles are for this machine alone: %w", err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for profiles: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	go server.Serve(listener)
	logger.Info("serving profiles", "address", listener.Addr().String())
	return server.Close, nil
}

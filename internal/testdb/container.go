package testdb

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx", for the wait and for pgtestdb
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// officialImage is the default of LEDGER_TEST_POSTGRES_IMAGE, here and in
// tests/containers/image.sh.
const officialImage = "postgres:17-alpine"

func startContainer(ctx context.Context, getenv func(string) string) (*server, error) {
	const port = "5432/tcp"
	password := rand.Text() // the port is open to the host's network
	address := func(host string, port network.Port) string {
		u := url.URL{
			Scheme:   "postgres",
			User:     url.UserPassword("ledger", password),
			Host:     net.JoinHostPort(host, port.Port()),
			Path:     "/ledger",
			RawQuery: "sslmode=disable",
		}
		return u.String()
	}
	command := []string{"postgres"}
	for name, value := range settings {
		command = append(command, "-c", name+"="+value)
	}
	image := cmp.Or(getenv("LEDGER_TEST_POSTGRES_IMAGE"), officialImage)
	c, err := testcontainers.Run(ctx, image,
		testcontainers.WithEnv(map[string]string{
			"POSTGRES_USER":     "ledger",
			"POSTGRES_PASSWORD": password,
			"POSTGRES_DB":       "ledger",
		}),
		testcontainers.WithExposedPorts(port),
		testcontainers.WithCmd(command...),
		// A query over TCP and not a line of the log: the official image starts
		// twice, the first time without TCP, and says both times that it is ready.
		testcontainers.WithWaitStrategy(wait.ForSQL(port, "pgx", address)),
	)
	stop := func() error {
		return testcontainers.TerminateContainer(c, testcontainers.StopTimeout(0))
	}
	var host string
	var mapped network.Port
	if err == nil {
		host, err = c.Host(ctx)
	}
	if err == nil {
		mapped, err = c.MappedPort(ctx, port)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("container of %s: %w", image, err), stop())
	}
	return &server{url: address(host, mapped), stop: stop}, nil
}

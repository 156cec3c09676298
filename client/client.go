// Package client is the Go client of the ledger's HTTP interface. All of it
// but this file is generated from the contract, api/openapi.yaml. Start reading
// at [NewClientWithResponses].
package client

//go:generate go tool oapi-codegen -config oapi-codegen.yaml ../api/openapi.yaml

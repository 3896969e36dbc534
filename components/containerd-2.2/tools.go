//go:build tools

// Package components pins the commands that `cargo xtask components` builds, so that `go mod tidy` keeps their dependencies.
package components

import (
	_ "github.com/containerd/containerd/v2/cmd/containerd"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/v2/cmd/ctr"
)

//go:build tools

// Package components pins the commands that `cargo xtask components` builds, so that `go mod tidy` keeps their dependencies.
package components

import (
	_ "helm.sh/helm/v3/cmd/helm"
)

// Command rancher-crds prints definitions of kinds that Rancher has only as Go types: made of them as Rancher makes them when it starts
// (pkg/crds/dashboard and pkg/crds/provisioningv2 of its repository).
package main

import (
	"encoding/json"
	"fmt"
	"os"

	management "github.com/rancher/rancher/pkg/apis/management.cattle.io/v3"
	provisioning "github.com/rancher/rancher/pkg/apis/provisioning.cattle.io/v1"
	"github.com/rancher/wrangler/v3/pkg/crd"
)

func main() {
	for _, kind := range []crd.CRD{
		{SchemaObject: management.ManagedChart{}, Status: true},
		{SchemaObject: &provisioning.Cluster{}, Status: true},
	} {
		definition, err := kind.ToCustomResourceDefinition()
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(definition)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// Command kubevirt-crds prints definitions of KubeVirt's kinds: its operator has them as code, and makes them of it.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
)

func main() {
	for _, kind := range []func() (*apiextensions.CustomResourceDefinition, error){
		components.NewVirtualMachineCrd,
		components.NewVirtualMachineInstanceCrd,
		components.NewVirtualMachineInstanceMigrationCrd,
	} {
		definition, err := kind()
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(definition)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

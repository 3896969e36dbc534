// Command kube-vip-stand-in does what kube-vip does for a control plane with ARP: it takes part in the election on a Lease under the name
// of its node, asking the API server of its own machine only, and whoever is elected has the address. Who cannot renew gives it up and
// ends, as kube-vip does; the kubelet starts it anew. Everything else of kube-vip (BGP, Services, tables of routes) is not there.
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	// So often neighbours are told where the address is.
	announceEvery = 3 * time.Second

	etherTypeARP = 0x0806
)

func main() {
	node := flag.String("node", "", "the name under which it holds the lease")
	address := flag.String("address", "", "the IPv4 address that whoever holds the lease has")
	device := flag.String("device", "", "the interface that gets it")
	server := flag.String("server", "", "the API server of this machine, instead of the one in the kubeconfig")
	kubeconfig := flag.String("kubeconfig", "/etc/kubernetes/admin.conf", "")
	namespace := flag.String("namespace", "kube-system", "of the lease")
	lease := flag.String("lease", "plndr-cp-lock", "")
	// kube-vip's own defaults.
	leaseDuration := flag.Duration("lease-duration", 5*time.Second, "after it others may take a lease that was not renewed")
	renewDeadline := flag.Duration("renew-deadline", 3*time.Second, "after it a lease that cannot be renewed is lost")
	retryPeriod := flag.Duration("retry-period", time.Second, "between two attempts")
	flag.Parse()

	virtual, err := newVirtual(*address, *device)
	if err != nil {
		log.Fatal(err)
	}
	// What an earlier one left as it was killed.
	if err := virtual.remove(); err != nil {
		log.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags(*server, *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	// An API server that hangs is one that cannot be reached.
	config.Timeout = *renewDeadline
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: *lease, Namespace: *namespace},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: *node},
		},
		ReleaseOnCancel: true,
		LeaseDuration:   *leaseDuration,
		RenewDeadline:   *renewDeadline,
		RetryPeriod:     *retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: virtual.keep,
			OnStoppedLeading: func() {
				if err := virtual.remove(); err != nil {
					log.Print(err)
				}
				if ctx.Err() == nil {
					log.Fatalf("%s lost the lease and gave %s up", *node, *address)
				}
			},
			OnNewLeader: func(holder string) { log.Printf("%s is held by %s", *address, holder) },
		},
	})
}

// virtual is the address on the interface.
type virtual struct {
	// Whoever takes it away takes it away for good: it is added only while the lease is held.
	lock    sync.Mutex
	link    netlink.Link
	address *netlink.Addr
}

func newVirtual(address, device string) (*virtual, error) {
	ip := net.ParseIP(address).To4()
	if ip == nil {
		return nil, fmt.Errorf("-address: %q is no IPv4 address", address)
	}
	link, err := netlink.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("interface %q: %w", device, err)
	}
	return &virtual{link: link, address: &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(32, 32)}}}, nil
}

// keep has the address on the interface, and tells the neighbours, until the lease is lost.
func (v *virtual) keep(ctx context.Context) {
	ticks := time.NewTicker(announceEvery)
	defer ticks.Stop()
	for ctx.Err() == nil {
		if err := v.add(ctx); err != nil {
			log.Fatalf("adding %s: %v", v.address, err)
		}
		if err := v.announce(); err != nil {
			log.Printf("announcing %s: %v", v.address, err)
		}
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
	}
}

func (v *virtual) add(ctx context.Context) error {
	v.lock.Lock()
	defer v.lock.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	return netlink.AddrReplace(v.link, v.address)
}

// remove takes the address off the interface; one that is not there is fine.
func (v *virtual) remove() error {
	v.lock.Lock()
	defer v.lock.Unlock()
	there, err := netlink.AddrList(v.link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("addresses: %w", err)
	}
	for _, address := range there {
		if address.IP.Equal(v.address.IP) {
			if err := netlink.AddrDel(v.link, &address); err != nil {
				return fmt.Errorf("removing %s: %w", v.address, err)
			}
		}
	}
	return nil
}

// announce sends a gratuitous ARP request: whoever knows the address from before learns where it is now.
func (v *virtual) announce() error {
	socket, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(socket)
	to := syscall.SockaddrLinklayer{Protocol: swapped(etherTypeARP), Ifindex: v.link.Attrs().Index, Halen: 6}
	copy(to.Addr[:], broadcast)
	return syscall.Sendto(socket, gratuitousARP(v.link.Attrs().HardwareAddr, v.address.IP), 0, &to)
}

var broadcast = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// gratuitousARP is the whole frame: a question for an address that says itself who has it.
func gratuitousARP(own net.HardwareAddr, ip net.IP) []byte {
	frame := append([]byte{}, broadcast...)
	frame = append(frame, own...)
	frame = binary.BigEndian.AppendUint16(frame, etherTypeARP)
	// Ethernet, IPv4, lengths of their addresses, a request.
	frame = append(frame, 0, 1, 8, 0, 6, 4, 0, 1)
	frame = append(frame, own...)
	frame = append(frame, ip...)
	frame = append(frame, 0, 0, 0, 0, 0, 0)
	return append(frame, ip...)
}

// swapped is a number in the order of the network, on machines that have the other one.
func swapped(number uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, number))
}

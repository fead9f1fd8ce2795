// The network policy controller that K3s runs inside each of its nodes, as a program of its own.
//
//	network-policies --kubeconfig FILE --node NAME --services CIDR
//
// It is kube-router's, in K3s' fork. K3s gives it the certificate of system:k3s-controller, and so do we: whatever that may
// not read, policies cannot follow.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"github.com/cloudnativelabs/kube-router/v2/pkg/utils"
	"github.com/coreos/go-iptables/iptables"
	"github.com/vishvananda/netlink"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const lookAgain = time.Second

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file with the certificate of system:k3s-controller")
	node := flag.String("node", "", "name of this machine's Node")
	services := flag.String("services", "10.43.0.0/16", "range of the addresses of services")
	flag.Parse()
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	if err := run(stop, *kubeconfig, *node, *services); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(stop context.Context, kubeconfig, node, services string) error {
	connection, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return err
	}
	if err := waitForAddress(stop, client, node); err != nil {
		return err
	}
	filters, err := iptables.NewWithProtocol(iptables.ProtocolIPv4)
	if err != nil {
		return err
	}
	sets, err := utils.NewIPSet(false)
	if err != nil {
		return err
	}
	settings := options.NewKubeRouterConfig()
	settings.RunFirewall = true
	settings.EnableIPv4 = true
	settings.HostnameOverride = node
	settings.ClusterIPCIDRs = []string{services}
	settings.NodePortRange = "30000:32767"

	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	factory.Start(stop.Done())
	factory.WaitForCacheSync(stop.Done())

	controller, err := netpol.NewNetworkPolicyController(
		client, settings, pods, policies, namespaces, &sync.Mutex{}, &netlink.Handle{},
		map[core.IPFamily]utils.IPTablesHandler{core.IPv4Protocol: filters},
		map[core.IPFamily]utils.IPSetHandler{core.IPv4Protocol: sets},
	)
	if err != nil {
		return err
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods:       controller.PodEventHandler,
		namespaces: controller.NamespaceEventHandler,
		policies:   controller.NetworkPolicyEventHandler,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	// The controller says now and then that it lives, to whoever reads this.
	health := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range health {
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	controller.Run(health, stop.Done(), &running)
	return nil
}

// The controller looks up the addresses of its Node once, when it is made.
func waitForAddress(stop context.Context, client kubernetes.Interface, name string) error {
	for {
		node, err := client.CoreV1().Nodes().Get(stop, name, meta.GetOptions{})
		if err == nil && len(node.Status.Addresses) > 0 {
			return nil
		}
		select {
		case <-stop.Done():
			return stop.Err()
		case <-time.After(lookAgain):
		}
	}
}

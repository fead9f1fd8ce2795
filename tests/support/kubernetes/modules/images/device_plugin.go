package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// A device plugin with devices that do nothing, told to a kubelet by its gRPC API (k8s.io/kubelet,
// pkg/apis/deviceplugin/v1beta1). gRPC is HTTP/2 with a prefix of five bytes before each message, and the few messages
// here are written as the bytes that protocol buffers make of them.

const (
	sockets  = "/var/lib/kubelet/device-plugins"
	endpoint = "tests.sock"
)

func devicePlugin(resource string, devices []string) {
	listening, err := net.Listen("unix", fresh(filepath.Join(sockets, endpoint)))
	fail(err)
	server := http.Server{Protocols: plainHTTP2(), Handler: plugin(devices)}
	go func() { fail(server.Serve(listening)) }()
	for register(resource) != nil {
		time.Sleep(time.Second) // The kubelet is starting.
	}
	fmt.Println("registered")
	before, _ := os.Stat(filepath.Join(sockets, "kubelet.sock"))
	for { // A kubelet that starts anew makes its socket anew and forgets us, as every device plugin has to see.
		time.Sleep(time.Second)
		now, err := os.Stat(filepath.Join(sockets, "kubelet.sock"))
		if err == nil && !os.SameFile(before, now) {
			os.Exit(0)
		}
	}
}

func plugin(devices []string) http.Handler {
	handler := http.NewServeMux()
	handler.HandleFunc("/v1beta1.DevicePlugin/GetDevicePluginOptions", answer(nil))
	handler.HandleFunc("/v1beta1.DevicePlugin/ListAndWatch", func(out http.ResponseWriter, request *http.Request) {
		list := []byte{}
		for _, device := range devices {
			list = append(list, field(1, append(field(1, []byte(device)), field(2, []byte("Healthy"))...))...)
		}
		begin(out, list)
		out.(http.Flusher).Flush()
		<-request.Context().Done()
	})
	// One container, with a variable in its environment.
	variable := append(field(1, []byte("TESTS_DEVICE")), field(2, []byte("yes"))...)
	handler.HandleFunc("/v1beta1.DevicePlugin/Allocate", answer(field(1, field(1, variable))))
	return handler
}

func register(resource string) error {
	dial := func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", filepath.Join(sockets, "kubelet.sock"))
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, Protocols: plainHTTP2()}}
	body := append(field(1, []byte("v1beta1")), field(2, []byte(endpoint))...)
	body = append(body, field(3, []byte(resource))...)
	request, _ := http.NewRequest("POST", "http://kubelet/v1beta1.Registration/Register", framed(body))
	request.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	got, err := client.Do(request)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	io.Copy(io.Discard, got.Body)
	if status := got.Trailer.Get("Grpc-Status"); status != "0" {
		return fmt.Errorf("the kubelet answered %q %s", status, got.Header)
	}
	return nil
}

func answer(message []byte) http.HandlerFunc {
	return func(out http.ResponseWriter, _ *http.Request) {
		begin(out, message)
		out.Header().Set("Grpc-Status", "0")
	}
}

func begin(out http.ResponseWriter, message []byte) {
	out.Header().Set("Content-Type", "application/grpc")
	out.Header().Set("Trailer", "Grpc-Status")
	io.Copy(out, framed(message))
}

func framed(message []byte) io.Reader {
	prefix := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	return bytes.NewReader(append(prefix, message...))
}

// A field of a message that has a length: its number and type, its length, and itself.
func field(number int, value []byte) []byte {
	return append(binary.AppendUvarint([]byte{byte(number<<3 | 2)}, uint64(len(value))), value...)
}

func plainHTTP2() *http.Protocols {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return protocols
}

func fresh(path string) string {
	os.Remove(path)
	return path
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

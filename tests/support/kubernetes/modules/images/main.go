// The program of all images that tests run: a container with nothing but this file.
//
//	main pause          waits for ever, which holds a pod's namespaces
//	main serve TEXT [PORT...]
//	                    answers TEXT on port 8080 and these, and at /fetch?url=URL what that URL answers
//	main device-plugin RESOURCE DEVICE...
//	                    offers devices to the kubelet of its node
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "serve" {
		serve(os.Args[2], append(os.Args[3:], "8080"))
		return
	}
	if len(os.Args) > 3 && os.Args[1] == "device-plugin" {
		devicePlugin(os.Args[2], os.Args[3:])
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}

func serve(text string, ports []string) {
	// A connection of its own for each request: a network policy lets one go on that was open before.
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(answer, text)
	})
	http.HandleFunc("/fetch", func(answer http.ResponseWriter, request *http.Request) {
		got, err := client.Get(request.URL.Query().Get("url"))
		if err != nil {
			http.Error(answer, err.Error(), http.StatusBadGateway)
			return
		}
		defer got.Body.Close()
		io.Copy(answer, got.Body)
	})
	fmt.Println("serving")
	ended := make(chan error)
	for _, port := range ports {
		go func() { ended <- http.ListenAndServe(":"+port, nil) }()
	}
	fmt.Fprintln(os.Stderr, <-ended)
	os.Exit(1)
}

// One program that stands in for those of critest's images, by the name under which it is started: an image has only what a spec looks at.
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "pause":
		pause()
	case "nonewprivs":
		fmt.Printf("Effective uid: %d\n", os.Geteuid())
	default:
		serve(name)
	}
}

// pause is the first process of a pod: it reaps orphaned processes, and ends when it is told to.
func pause() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for it := range signals {
		if it != syscall.SIGCHLD {
			return
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}

// serve is nginx and httpd: a page, a line in the log, a file with the process id, and the command line that a spec greps for.
func serve(name string) {
	const master = "nginx: master process"
	if name == "nginx" {
		program, err := os.Executable() // and not /proc/self/exe, after which pidof finds the process as "exe"
		fail(err)
		fail(syscall.Exec(program, append([]string{master}, os.Args[1:]...), os.Environ()))
	}
	fmt.Println("httpd -D FOREGROUND")
	fail(os.WriteFile("/var/run/nginx.pid", []byte(fmt.Sprintln(os.Getpid())), 0o644))
	page := func(answer http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(answer, "<h1>Welcome to nginx!</h1>")
	}
	port := os.Getenv("PORT")
	if port == "" {
		port = "80"
	}
	fail(http.ListenAndServe(":"+port, http.HandlerFunc(page)))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

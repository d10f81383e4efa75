// TLS as Go's crypto/tls speaks it; what it does stands in modes.py.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"
)

var address, folder string

func fail(words ...any) {
	fmt.Println(append([]any{"go:"}, words...)...)
	os.Exit(1)
}

func config(authority, certificate string, version uint16) *tls.Config {
	pem, err := os.ReadFile(filepath.Join(folder, authority+".pem"))
	made := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: version, MaxVersion: version}
	if err != nil || !made.RootCAs.AppendCertsFromPEM(pem) {
		fail("no authority", authority, err)
	}
	if certificate != "none" {
		path := filepath.Join(folder, certificate)
		own, err := tls.LoadX509KeyPair(path+".pem", path+".key")
		if err != nil {
			fail(err)
		}
		// A server's list of authorities would keep the client from showing another one's certificate.
		made.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	}
	return made
}

// talk stores and reads a value, and returns the server's certificate.
func talk(made *tls.Config, length int) ([]byte, error) {
	dialer := &net.Dialer{Timeout: 30 * time.Second}
	client, err := tls.DialWithDialer(dialer, "tcp", address, made)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	client.SetDeadline(time.Now().Add(30 * time.Second))
	value := bytes.Repeat([]byte("v"), length)
	request := fmt.Appendf(nil, "set tls 0 0 %d\r\n%s\r\nget tls\r\n", length, value)
	if _, err := client.Write(request); err != nil {
		return nil, err
	}
	wanted := fmt.Appendf(nil, "STORED\r\nVALUE tls 0 %d\r\n%s\r\nEND\r\n", length, value)
	got := make([]byte, len(wanted))
	if _, err := io.ReadFull(client, got); err != nil {
		return nil, err
	}
	if !bytes.Equal(got, wanted) {
		fail("wrong answer", string(got[:100]))
	}
	return client.ConnectionState().PeerCertificates[0].Raw, nil
}

func main() {
	address, folder = net.JoinHostPort(os.Args[2], os.Args[3]), os.Args[4]
	versions := []uint16{tls.VersionTLS12, tls.VersionTLS13}
	if os.Args[1] == "modes" {
		for index, version := range versions {
			attempt := func(what, authority, certificate string) {
				_, err := talk(config(authority, certificate, version), 100_000)
				outcome := "served"
				if err != nil {
					outcome = "refused"
				}
				if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
					fail("the server says nothing")
				}
				fmt.Println([]string{"1.2", "1.3"}[index], what, outcome)
			}
			for _, certificate := range []string{"none", "client", "foreign"} {
				attempt(certificate, "ca", certificate)
			}
			attempt("distrust", "strangers", "client")
		}
		return
	}
	count, seen := 0, map[string]bool{}
	for ; ; count++ {
		if _, err := os.Stat(filepath.Join(folder, "stop")); err == nil {
			break
		}
		certificate, err := talk(config("ca", "client", versions[count%2]), 10)
		if err != nil {
			fail(err)
		}
		if !seen[string(certificate)] {
			seen[string(certificate)] = true
			fmt.Println("seen", len(seen))
		}
	}
	fmt.Println(count, "connections")
}

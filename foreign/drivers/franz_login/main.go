// The franz-go client logs in by a delegation token, over TLS, and writes one record.
//
//	driver ADDRESS AUTHORITY.pem MECHANISM TOPIC < token
//
// The token's id and password are two lines on stdin. It ends with 0 and the record's offset on stdout, or with 1 and
// the reason on stderr.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func main() {
	offset, err := write(os.Args[1], os.Args[2], os.Args[3], os.Args[4])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(offset)
}

func write(address, authority, mechanism, topic string) (int64, error) {
	lines := bufio.NewScanner(os.Stdin)
	lines.Scan()
	id := lines.Text()
	lines.Scan()
	auth := scram.Auth{User: id, Pass: lines.Text(), IsToken: true}
	var chosen sasl.Mechanism = auth.AsSha256Mechanism()
	if mechanism == "SCRAM-SHA-512" {
		chosen = auth.AsSha512Mechanism()
	}
	pem, err := os.ReadFile(authority)
	if err != nil {
		return 0, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(address),
		kgo.DialTLSConfig(&tls.Config{RootCAs: roots}),
		kgo.SASL(chosen),
		kgo.RecordDeliveryTimeout(10*time.Second),
	)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return 0, err
	}
	record, err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("by franz-go")}).First()
	if err != nil {
		return 0, err
	}
	return record.Offset, nil
}

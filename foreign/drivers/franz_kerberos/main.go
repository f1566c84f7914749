// The franz-go client logs in by GSSAPI with a keytab, over TLS or without, and writes one record.
//
//	driver ADDRESS PRINCIPAL KEYTAB TOPIC [AUTHORITY.pem]
//
// The realm is that of the file in KRB5_CONFIG. It ends with 0 and the record's offset on stdout, or with 1 and the
// reason on stderr.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
)

func main() {
	authority := ""
	if len(os.Args) > 5 {
		authority = os.Args[5]
	}
	offset, err := write(os.Args[1], os.Args[2], os.Args[3], os.Args[4], authority)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(offset)
}

func login(principal, file string) (kerberos.Auth, error) {
	realm, err := config.Load(os.Getenv("KRB5_CONFIG"))
	if err != nil {
		return kerberos.Auth{}, err
	}
	keys, err := keytab.Load(file)
	if err != nil {
		return kerberos.Auth{}, err
	}
	who := client.NewWithKeytab(
		principal, realm.LibDefaults.DefaultRealm, keys, realm, client.DisablePAFXFAST(true),
	)
	return kerberos.Auth{Client: who, Service: "kafka"}, nil
}

func write(address, principal, file, topic, authority string) (int64, error) {
	auth, err := login(principal, file)
	if err != nil {
		return 0, err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(address),
		kgo.SASL(auth.AsMechanism()),
		kgo.RecordDeliveryTimeout(10 * time.Second),
	}
	if authority != "" {
		pem, err := os.ReadFile(authority)
		if err != nil {
			return 0, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: roots}))
	}
	producer, err := kgo.NewClient(options...)
	if err != nil {
		return 0, err
	}
	defer producer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := producer.Ping(ctx); err != nil {
		return 0, err
	}
	record, err := producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("by franz-go")}).First()
	if err != nil {
		return 0, err
	}
	return record.Offset, nil
}

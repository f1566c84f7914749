// Requests that say themselves which broker they are for, and how one connects to it.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type security struct {
	Authority string `json:"authority"`
	Pair      string `json:"pair"`
	Mechanism string `json:"mechanism"`
	Username  string `json:"username"`
	Password  string `json:"password"`
}

func answerEach(line []byte) map[string]any {
	var where struct {
		Address  string   `json:"address"`
		Security security `json:"security"`
	}
	if err := json.Unmarshal(line, &where); err != nil {
		return failure(err)
	}
	options, err := where.Security.options()
	if err != nil {
		return failure(err)
	}
	d, err := newDriver(append(options, kgo.SeedBrokers(where.Address)))
	if err != nil {
		return failure(err)
	}
	defer d.client.Close()
	return d.answer(line)
}

func (s *security) options() ([]kgo.Opt, error) {
	pem, err := os.ReadFile(s.Authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if s.Pair != "" {
		pair, err := tls.LoadX509KeyPair(s.Pair, s.Pair)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	options := []kgo.Opt{kgo.DialTLSConfig(config), kgo.RequestRetries(1)}
	if s.Mechanism == "" {
		return options, nil
	}
	mechanism, err := s.mechanism()
	return append(options, kgo.SASL(mechanism)), err
}

func (s *security) mechanism() (sasl.Mechanism, error) {
	secret := scram.Auth{User: s.Username, Pass: s.Password}
	switch s.Mechanism {
	case "PLAIN":
		return plain.Auth{User: s.Username, Pass: s.Password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return secret.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return secret.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			return oauth.Auth{Token: s.Password}, nil
		}), nil
	}
	return nil, fmt.Errorf("no mechanism %s", s.Mechanism)
}

"""Rules that make names of clients' certificates, asked of Kafka's own class and of ours."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from foreign import toolchain
from tests.compat.conftest import available

from tidelog.errors import ConfigError
from tidelog.security.tls.principal_mapping import NoRuleAppliesError, PrincipalMapping

_ORACLE = """
import java.util.*; import java.io.*;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;
public class Names {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        for (String line; (line = in.readLine()) != null; ) {
            String[] parts = line.split("\t", -1);
            try {
                SslPrincipalMapper mapper = SslPrincipalMapper.fromRules(parts[1]);
                try { out.println("=" + mapper.getName(parts[0])); }
                catch (Exception e) { out.println("-"); }
            } catch (IllegalArgumentException e) { out.println("!"); }
        }
    }
}
"""
_USED = (
    "RULE:^CN=(.*?),OU=b.*$/$1/",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/L",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
    "RULE:^(?i)cn=([^,]{1,256}).*$/$1/",
    "RULE:^(?!.*OU=b).*CN=([^,]+).*$/$1/U",
    "RULE:^(?=.*,O=a)CN=([^,]+).*(?<!b)$/$1/",
    r"RULE:^CN=(\p{Alnum}+)(?:,\p{Upper}+=[\p{L}\d]*)*$/$1/",
    r"RULE:CN=(.*?)\/(.*)/$2/",
    "DEFAULT",
)
_ATOMS = [
    "a",
    "b",
    ".",
    "[ab]",
    "[^b]",
    r"\w",
    r"\d",
    "^",
    "$",
    "[a-c-]",
    "=",
    r"\b",
    ",",
    "CN=",
    r"\p{Lower}",
]
_GROUPS = ["", "", "", "?:", "?i:", "?=", "?!", "?<=", "?<!"]
_REPEATS = ["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}"]


def pattern(chance: random.Random, depth: int = 0) -> str:
    parts = []
    for _ in range(chance.randrange(1, 4)):
        atom = chance.choice(_ATOMS)
        if depth < 2 and chance.random() < 0.5:
            atom = f"({chance.choice(_GROUPS)}{pattern(chance, depth + 1)})"
        parts.append(atom + chance.choice(_REPEATS))
    return "".join(parts) + (f"|{pattern(chance, 2)}" if chance.random() < 0.2 else "")


def rules(chance: random.Random) -> str:
    if chance.random() < 0.4:
        return ", ".join(chance.sample(_USED, chance.randrange(1, 4)))
    ends = (chance.choice(["", ".*", ".*?"]), chance.choice(["", ".*"]))
    replacement = chance.choice(["", "z", "$0", "<$1>", "[$1$0]", r"\$1"])
    made = f"RULE:{ends[0]}{pattern(chance)}{ends[1]}/{replacement}/{chance.choice(['', '', 'L', 'U'])}"
    return made + chance.choice(["", ",DEFAULT"])


def name(chance: random.Random) -> str:
    def value() -> str:
        return "".join(chance.choices("aabbcABx.1/ä", k=chance.randrange(5)))

    kinds = chance.choice([["CN"], ["CN", "OU"], ["CN", "OU", "O"], ["OU", "CN"], ["cn", "O"]])
    return ",".join(f"{kind}={value()}" for kind in kinds)


@pytest.mark.parametrize("version", ["kafka-4", "kafka-3.9"])
def test_rules_mean_what_they_mean_to_kafka(tmp_path: Path, version: str) -> None:
    with available():
        path = toolchain.classpath(version)
    chance = random.Random(5280)
    questions = [(name(chance), rules(chance)) for _ in range(12000)]
    source = tmp_path / "Names.java"
    source.write_text(_ORACLE)
    done = subprocess.run(
        [toolchain.program("java"), "-XX:TieredStopAtLevel=1", "-cp", path, str(source)],
        input="".join(f"{each}\t{text}\n" for each, text in questions),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == len(questions)
    agreed = named = 0
    for (each, text), answer in zip(questions, answers, strict=True):
        try:
            ours = PrincipalMapping(text)
        except ConfigError:
            # It refuses more than Java: groups that capture where they look around, repetitions of nothing.
            continue
        try:
            found = f"={ours.name_for(each)}"
        except NoRuleAppliesError:
            found = "-"
        assert found == answer, (each, text)
        agreed += 1
        named += len(answer) > 1
    assert agreed > 5000
    assert named > 3000

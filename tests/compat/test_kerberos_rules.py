"""Rules that make names of Kerberos principals, asked of Kafka's own class and of ours."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from foreign import toolchain
from tests.compat.conftest import available

from tidelog.errors import ConfigError
from tidelog.security.kerberos.auth_to_local import AuthToLocal, NoRuleAppliesError

_REPLACEMENTS = ("", "z", "$1", "$0", "$12", "<$1>$2", ".$", "\\$1")
_ORACLE = """
import java.util.*; import java.io.*;
import org.apache.kafka.common.security.kerberos.*;
public class Names {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        for (String line; (line = in.readLine()) != null; ) {
            String[] parts = line.split("\t", -1);
            try {
                List<String> rules = Arrays.asList(Arrays.copyOfRange(parts, 1, parts.length));
                KerberosShortNamer namer = KerberosShortNamer.fromUnparsedRules("R", rules);
                try { out.println("=" + namer.shortName(KerberosName.parse(parts[0]))); }
                catch (IOException | IllegalArgumentException | IndexOutOfBoundsException e) {
                    out.println("-");
                }
            } catch (IllegalArgumentException e) { out.println("!"); }
        }
    }
}
"""


def made_up_rules(chance: random.Random) -> list[str]:
    def pattern(depth: int = 0) -> str:
        parts = []
        for _ in range(chance.randrange(1, 4)):
            atom = chance.choice(
                ["a", "b", ".", "[ab]", "[^b]", "\\.", "\\w", "\\d", "^", "$", "[a-c-]", "@", "\\b"]
            )
            if depth < 2 and chance.random() < 0.4:
                atom = f"({chance.choice(['', '?:'])}{pattern(depth + 1)})"
            parts.append(atom + chance.choice(["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1}"]))
        return (
            chance.choice(["", "", "|b"]).join(["".join(parts), ""])
            if chance.random() < 0.3
            else "".join(parts)
        )

    def rule() -> str:
        if chance.random() < 0.15:
            return "DEFAULT"
        text = (
            f"RULE:[{chance.choice('112')}:{chance.choice(['$1', '$1', '$1@$0', '$2', '$1$1', 'x$0', '$3'])}]"
        )
        if chance.random() < 0.5:
            text += f"({pattern(2)})"
        if chance.random() < 0.7:
            text += f"s/{pattern()}/{chance.choice(_REPLACEMENTS)}/"
            text += chance.choice(["", "g"])
        return text + chance.choice(["", "", "/L", "/U", "/", "L"])

    return [rule() for _ in range(chance.randrange(1, 4))]


@pytest.mark.parametrize("version", ["kafka-4", "kafka-3.9"])
def test_rules_mean_what_they_mean_to_kafka(tmp_path: Path, version: str) -> None:
    with available():
        path = toolchain.classpath(version)
    chance = random.Random(4752)
    letters = "aabbcABx.1-"
    questions: list[tuple[str, list[str]]] = []
    for _ in range(12000):
        parts = [
            "".join(chance.choices(letters, k=chance.randrange(6))) for _ in range(chance.choice([1, 1, 2]))
        ]
        questions.append((f"{'/'.join(parts)}@{chance.choice(['R', 'R', 'OTHER'])}", made_up_rules(chance)))
    source = tmp_path / "Names.java"
    source.write_text(_ORACLE)
    done = subprocess.run(
        [toolchain.program("java"), "-XX:TieredStopAtLevel=1", "-cp", path, str(source)],
        input="".join("\t".join([name, *rules]) + "\n" for name, rules in questions),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == len(questions)
    agreed = named = 0
    for (name, rules), answer in zip(questions, answers, strict=True):
        try:
            ours = AuthToLocal(rules, "R")
        except ConfigError:
            # It refuses more than Kafka: references to what is not there, and repetitions of nothing.
            continue
        try:
            found = f"={ours.name_for(name)}"
        except NoRuleAppliesError as error:
            # Kafka lets a user have no name.
            found = "=" if "leave no name" in str(error) else "-"
        assert found == answer, (name, rules)
        agreed += 1
        named += len(answer) > 1
    assert agreed > 3000
    assert named > 1000

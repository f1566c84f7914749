"""Fraud with a known truth, and honest people who look like fraudsters.

Each function puts one incident in and returns it. The paces range from a script's (seconds) to a patient
person's, so that short live runs have whole incidents too. What the pipelines are expected to find is said
in docs/pipelines; what they must not take for fraud is in :data:`HONEST_CASES`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tidelog_rewards.generator.chains import Chains
from tidelog_rewards.generator.outbox import Outbox, Presence
from tidelog_rewards.generator.population import Device, Population
from tidelog_rewards.generator.regions import CHINA
from tidelog_rewards.generator.truth import Incident, PipelineName, Truth

_PACES_S = ((2.0, 6.0), (12.0, 40.0), (55.0, 95.0))
"""Seconds between two logins of a device that switches: a script, a quick hand, a patient one."""


class Planting:
    """Puts incidents and honest cases into the outbox, in turn and at random."""

    def __init__(
        self, random: Random, population: Population, outbox: Outbox, chains: Chains, truth: Truth
    ) -> None:
        self._random = random
        self._population = population
        self._outbox = outbox
        self._chains = chains
        self._truth = truth
        self._turns = dict.fromkeys(("switch", "ring", "honest"), 0)

    def switching(self, at_ms: int) -> None:
        """A device that changes accounts again and again."""
        self._finish(switching_device(self, at_ms, _PACES_S[self._turn("switch", len(_PACES_S))]))

    def ring(self, at_ms: int) -> None:
        """One of the kinds of invitation fraud."""
        kinds = tuple(RINGS.values())
        self._finish(kinds[self._turn("ring", len(kinds))](self, at_ms))

    def honest(self, at_ms: int) -> None:
        """Somebody who looks like a fraudster."""
        cases = tuple(HONEST_CASES.values())
        self._finish(cases[self._turn("honest", len(cases))](self, at_ms))

    def _turn(self, name: str, choices: int) -> int:
        turn = self._turns[name]
        self._turns[name] = turn + 1
        return turn % choices

    def _finish(self, incident: Incident) -> None:
        incident.expected = len(incident.event_ids)
        self._truth.open(incident)

    # -- what the kinds are made of

    def number(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``, both included."""
        return low + int(self._random.random() * (high - low + 1))

    def pause_ms(self, low_s: float, high_s: float) -> int:
        """A pause of so many seconds."""
        return int(1000 * (low_s + self._random.random() * (high_s - low_s)))

    def device(self) -> Device:
        """A device that nobody else has."""
        return self._population.new_device()

    def network(self) -> str:
        """A /24 of somewhere in China."""
        return CHINA.network(self._random)

    def phone(self) -> str:
        """A valid Chinese number."""
        return CHINA.phone(self._random)

    def account(
        self, incident: Incident, device: Device, *, ip: str | None = None, phone: str | None = None
    ) -> Presence:
        """A fresh account on ``device`` that takes part in the incident."""
        ip = ip or f"{self.network()}.{self.number(1, 253)}"
        user = self._population.new_user(CHINA, device, ip, phone or self.phone())
        incident.users.append(user.user_id)
        if device.device_id not in incident.devices:
            incident.devices.append(device.device_id)
        return Presence(user, device.device_id, ip)

    def login(self, incident: Incident, who: Presence, at_ms: int) -> None:
        """A login that belongs to the incident, and an ad or two looked at."""
        method = ("token", "password")[self.number(0, 1)]
        incident.event_ids.append(self._chains.plain_login(who, at_ms, method, incident=incident))
        self._chains.impression(who, at_ms + 500)

    def invite(
        self, incident: Incident, who: Presence, invitee: Presence, at_ms: int, *, signup: bool = True
    ) -> None:
        """An invitation that belongs to the incident; the invitee signs up first, unless it has done so."""
        if signup:
            at_ms = self._chains.signup(invitee, at_ms)
        incident.event_ids.append(self._chains.invitation(who, invitee, at_ms, incident))


def switching_device(plant: Planting, at_ms: int, pace_s: tuple[float, float]) -> Incident:
    """One device, 4 to 10 accounts, 9 to 30 logins, never the same account twice running."""
    incident = Incident("account-switch", "account-switch")
    device = plant.device()
    ip = f"{plant.network()}.{plant.number(1, 253)}"
    accounts = [plant.account(incident, device, ip=ip) for _ in range(plant.number(4, 10))]
    at = 0
    for _ in range(plant.number(9, 30)):
        plant.login(incident, accounts[at], at_ms)
        at_ms += plant.pause_ms(*pace_s)
        at = (at + plant.number(1, len(accounts) - 1)) % len(accounts)
    return incident


def _fraud(rule: str) -> Incident:
    pipeline: PipelineName = "invite-fraud"
    return Incident(pipeline, rule)


def one_device(plant: Planting, at_ms: int) -> Incident:
    """6 to 12 newcomers, all on the inviter's device."""
    incident = _fraud("device")
    device = plant.device()
    inviter = plant.account(incident, device)
    for _ in range(plant.number(6, 12)):
        plant.invite(incident, inviter, plant.account(incident, device, ip=inviter.ip), at_ms)
        at_ms += plant.pause_ms(3, 60)
    return incident


def device_farm(plant: Planting, at_ms: int) -> Incident:
    """4 inviters, each with 3 newcomers, who all come from one device: no inviter stands out alone."""
    incident = _fraud("device")
    farm = plant.device()
    for inviter in [plant.account(incident, plant.device()) for _ in range(4)]:
        for _ in range(3):
            plant.invite(incident, inviter, plant.account(incident, farm, ip=inviter.ip), at_ms)
            at_ms += plant.pause_ms(3, 60)
    return incident


def address_block(plant: Planting, at_ms: int) -> Incident:
    """14 to 25 newcomers on devices of their own, all in one /24, within less than half an hour."""
    incident = _fraud("address")
    network = plant.network()
    inviter = plant.account(incident, plant.device())
    for _ in range(plant.number(14, 25)):
        newcomer = plant.account(incident, plant.device(), ip=f"{network}.{plant.number(1, 253)}")
        plant.invite(incident, inviter, newcomer, at_ms)
        at_ms += plant.pause_ms(4, 60)
    return incident


def number_block(plant: Planting, at_ms: int) -> Incident:
    """9 to 18 newcomers whose numbers differ in the last digits only, as bought in a block."""
    incident = _fraud("number-block")
    inviter = plant.account(incident, plant.device())
    block = plant.phone()[:-3]
    first = plant.number(0, 900)
    for at in range(plant.number(9, 18)):
        newcomer = plant.account(incident, plant.device(), phone=f"{block}{first + at:03d}")
        plant.invite(incident, inviter, newcomer, at_ms)
        at_ms += plant.pause_ms(3, 80)
    return incident


def burst(plant: Planting, at_ms: int) -> Incident:
    """20 to 40 newcomers within minutes, or seconds, who have nothing else in common."""
    incident = _fraud("burst")
    inviter = plant.account(incident, plant.device())
    pace_s = (0.3, 1.0) if plant.number(0, 1) else (2.0, 8.0)
    for _ in range(plant.number(20, 40)):
        plant.invite(incident, inviter, plant.account(incident, plant.device()), at_ms)
        at_ms += plant.pause_ms(*pace_s)
    return incident


def cycle(plant: Planting, at_ms: int) -> Incident:
    """3 to 6 accounts on devices of their own that invite one another in a circle."""
    incident = _fraud("cycle")
    accounts = [plant.account(incident, plant.device()) for _ in range(plant.number(3, 6))]
    for inviter, invitee in zip(accounts, [*accounts[1:], accounts[0]], strict=True):
        plant.invite(incident, inviter, invitee, at_ms, signup=invitee is not accounts[0])
        at_ms += plant.pause_ms(3, 200)
    return incident


def mutual(plant: Planting, at_ms: int) -> Incident:
    """Two accounts on one device that invite each other."""
    incident = _fraud("mutual")
    device = plant.device()
    first = plant.account(incident, device)
    second = plant.account(incident, device, ip=first.ip)
    plant.invite(incident, first, second, at_ms)
    plant.invite(incident, second, first, at_ms + plant.pause_ms(20, 300), signup=False)
    return incident


def device_chain(plant: Planting, at_ms: int) -> Incident:
    """4 to 6 accounts on one device, each invited by the one before: no inviter has more than one."""
    incident = _fraud("chain")
    device = plant.device()
    inviter = plant.account(incident, device)
    for _ in range(plant.number(4, 6)):
        newcomer = plant.account(incident, device, ip=inviter.ip)
        plant.invite(incident, inviter, newcomer, at_ms)
        at_ms += plant.pause_ms(15, 150)
        inviter = newcomer
    return incident


def family_telephone(plant: Planting, at_ms: int) -> Incident:
    """3 or 4 people hand one telephone around for an evening, every two and a half minutes at most."""
    case = Incident(None, "family telephone")
    device = plant.device()
    ip = f"{plant.network()}.{plant.number(1, 253)}"
    people = [plant.account(case, device, ip=ip) for _ in range(plant.number(3, 4))]
    for turn in range(plant.number(6, 9)):
        plant.login(case, people[turn % len(people)], at_ms)
        at_ms += plant.pause_ms(155, 400)
    return case


def heavy_inviter(plant: Planting, at_ms: int) -> Incident:
    """Somebody with many friends: 10 to 20 invitations over hours, all different people."""
    case = Incident(None, "heavy inviter")
    inviter = plant.account(case, plant.device())
    for _ in range(plant.number(10, 20)):
        plant.invite(case, inviter, plant.account(case, plant.device()), at_ms)
        at_ms += plant.pause_ms(90, 600)
    return case


def office(plant: Planting, at_ms: int) -> Incident:
    """A person invites 5 to 8 colleagues behind the office's address, over lunch."""
    case = Incident(None, "office")
    network = plant.network()
    inviter = plant.account(case, plant.device(), ip=f"{network}.1")
    for _ in range(plant.number(5, 8)):
        plant.invite(case, inviter, plant.account(case, plant.device(), ip=f"{network}.1"), at_ms)
        at_ms += plant.pause_ms(30, 240)
    return case


def family_invitations(plant: Planting, at_ms: int) -> Incident:
    """A parent invites 2 or 3 children, who use the same tablet."""
    case = Incident(None, "family invitations")
    tablet = plant.device()
    parent = plant.account(case, tablet)
    for _ in range(plant.number(2, 3)):
        plant.invite(case, parent, plant.account(case, tablet, ip=parent.ip), at_ms)
        at_ms += plant.pause_ms(60, 300)
    return case


def mutual_friends(plant: Planting, at_ms: int) -> Incident:
    """Two friends who each entered the other's code, on telephones of their own."""
    case = Incident(None, "mutual friends")
    first = plant.account(case, plant.device())
    second = plant.account(case, plant.device())
    plant.invite(case, first, second, at_ms)
    plant.invite(case, second, first, at_ms + plant.pause_ms(60, 1200), signup=False)
    return case


RINGS: dict[str, Callable[[Planting, int], Incident]] = {
    "one device": one_device,
    "cycle": cycle,
    "number block": number_block,
    "burst": burst,
    "address block": address_block,
    "mutual": mutual,
    "device farm": device_farm,
    "chain": device_chain,
}
"""The kinds of invitation fraud, planted in turn."""

HONEST_CASES: dict[str, Callable[[Planting, int], Incident]] = {
    "family telephone": family_telephone,
    "heavy inviter": heavy_inviter,
    "office": office,
    "family invitations": family_invitations,
    "mutual friends": mutual_friends,
}
"""Who must not be taken for a fraudster."""

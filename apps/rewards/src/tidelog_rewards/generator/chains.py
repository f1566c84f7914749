"""What people do with the app, as chains of events that belong together and agree in money.

Of an ad that was shown just before the run began the log has the end only; tasks and invitations are in it
from their first event.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

from tidelog_rewards import events
from tidelog_rewards.generator.outbox import Credit, Outbox, Presence
from tidelog_rewards.generator.population import Population, User
from tidelog_rewards.generator.truth import Incident

_SIGNUP = Credit("signup", 100)
_INVITE = Credit("invite", 200)
_SHORTEST_PAUSE_MS = 2_000
_LONGEST_SHOWN_MS = 5_600
_SHORTEST_AD_MS, _LONGEST_AD_MS = 2_600, 32_600
"""What an ad and the pause after it take, about, of those that nobody sees."""
_RECORDS_PER_SESSION = 9
_CHANNELS = ("sms", "link", "qr", "chat")
_TASK_SIZES = (1, 2, 3, 3, 5, 5, 7, 10)


@dataclass(frozen=True, slots=True)
class Campaign:
    """An advertiser's campaign and what it pays users."""

    own_fields: str
    install_fields: str
    right_slide: Credit
    left_slide: Credit
    install: Credit


def make_campaigns(random: Random, number: int = 60) -> list[Campaign]:
    """The campaigns of a run."""
    campaigns = []
    for at in range(number):
        ad, campaign = f"ad-{random.randrange(1000, 10_000)}", f"c-{at:03d}"
        package = f"com.{random.choice(('game', 'shop', 'news', 'video', 'bank'))}.app{at:03d}"
        channel = random.choice(("lockscreen", "store", "partner"))
        campaigns.append(
            Campaign(
                f'"ad_id":"{ad}","campaign_id":"{campaign}"',
                f'"package":"{package}","campaign_id":"{campaign}","channel":"{channel}"',
                Credit("right_slide", random.randint(1, 3)),
                Credit("left_slide", random.randint(5, 30)),
                Credit("install", random.randint(50, 300)),
            )
        )
    return campaigns


class Chains:
    """Puts chains of events into the outbox."""

    def __init__(self, random: Random, population: Population, outbox: Outbox) -> None:
        self._random = random
        self._population = population
        self._outbox = outbox
        self._campaigns = make_campaigns(random)
        self._agenda: list[tuple[int, int, Presence | None, int]] = []
        """When a session goes on (a number that no other has), whose it is if that is known, ads to come."""
        self._remembered = 0

    def session(self, at_ms: int) -> None:
        """Somebody takes up the telephone: maybe a login, some ads, now and then a task or an invitation."""
        ads = 1 + int(self._random.random() * 5)
        if at_ms < self._outbox.start_ms:
            self._pass_over(at_ms, ads)
            return
        who, switched = self._somebody(at_ms)
        if switched or self._random.random() < 0.12:
            at_ms = self.login(who, at_ms)
        self._show_ad(at_ms, who, ads)

    def go_on(self, time_ms: int) -> None:
        """The next ads of all sessions that have one before ``time_ms``."""
        agenda = self._agenda
        while agenda and agenda[0][0] < time_ms:
            at_ms, _, who, ads = heappop(agenda)
            self._show_ad(at_ms, who or self._somebody(at_ms)[0], ads)

    def _show_ad(self, at_ms: int, who: Presence, ads: int) -> None:
        """The first of ``ads``; the others when their time has come, so that no work is done ahead."""
        draw = self._random.random
        at_ms = self.impression(who, at_ms) + _SHORTEST_PAUSE_MS + int(draw() * 20_000)
        if ads > 1:
            self._remember(at_ms, who, ads - 1)
            return
        luck = draw()
        if luck < 0.06:
            self.task_step(who, at_ms)
        elif luck < 0.085:
            self.invite(who, self._population.newcomer(who.user.region), at_ms + int(draw() * 60_000))

    def _remember(self, at_ms: int, who: Presence | None, ads: int) -> None:
        self._remembered += 1
        heappush(self._agenda, (at_ms, self._remembered, who, ads))

    def _pass_over(self, at_ms: int, ads: int) -> None:
        """A session that began before the start: what it did till then took time, and nobody sees it."""
        draw = self._random.random
        seen_ms = self._outbox.start_ms - _LONGEST_SHOWN_MS
        while ads and at_ms < seen_ms:
            at_ms += _SHORTEST_AD_MS + int(draw() * (_LONGEST_AD_MS - _SHORTEST_AD_MS))
            ads -= 1
        self._outbox.skipped += _RECORDS_PER_SESSION
        if ads:
            self._remember(at_ms, None, ads)

    def _somebody(self, at_ms: int) -> tuple[Presence, bool]:
        """A user who takes up the telephone, and whether it has just passed from one hand to another."""
        user = self._population.somebody()
        device = user.device
        switched = False
        if device.shared and device.holder is not user:
            if device.holder is None or at_ms >= device.may_switch_ms:
                switched = device.holder is not None
                device.holder = user
                device.may_switch_ms = at_ms + int(240_000 + self._random.random() * 3_600_000)
            else:
                user = device.holder
        return Presence(user, device.device_id, self._population.address_of(user, at_ms)), switched

    def impression(self, who: Presence, at_ms: int) -> int:
        """An ad on the lock screen, slid to the right (unlock) or to the left (look); returns its end."""
        draw = self._random.random
        outbox = self._outbox
        duration_ms = 600 + int(draw() * 5_000)
        campaign = self._campaigns[int(draw() * len(self._campaigns))]
        outbox.add(events.EXPOSURE.topic, who, at_ms, f'{campaign.own_fields},"duration_ms":{duration_ms}')
        at_ms += duration_ms
        choice = draw()
        if choice < 0.72:
            dwell_ms = 80 + int(draw() * 900)
            outbox.add(events.RIGHT_SLIDE.topic, who, at_ms, f'{campaign.own_fields},"dwell_ms":{dwell_ms}')
            outbox.add_credit(who, at_ms + dwell_ms, campaign.right_slide)
        elif choice < 0.88:
            dwell_ms = 1_500 + int(draw() * 18_000)
            outbox.add(events.LEFT_SLIDE.topic, who, at_ms, f'{campaign.own_fields},"dwell_ms":{dwell_ms}')
            outbox.add_credit(who, at_ms + dwell_ms, campaign.left_slide)
            at_ms += dwell_ms
            if choice < 0.74:
                at_ms = self._install(who, campaign, at_ms + 8_000 + int(draw() * 60_000))
        return at_ms

    def _install(self, who: Presence, campaign: Campaign, at_ms: int) -> int:
        self._outbox.add(events.INSTALL.topic, who, at_ms, campaign.install_fields)
        self._outbox.add_credit(who, at_ms + 500 + int(self._random.random() * 4_000), campaign.install)
        return at_ms

    def login(self, who: Presence, at_ms: int) -> int:
        """A login by token, password or a code by SMS, now and then after a failed try; returns its end."""
        draw = self._random.random
        way = draw()
        method = "token" if way < 0.55 else "password" if way < 0.8 else "sms"
        if method == "sms":
            at_ms = self.verification(who, at_ms, "login")
        elif method == "password" and way < 0.57:
            self.plain_login(who, at_ms, method, success=False)
            at_ms += 4_000 + int(draw() * 8_000)
        self.plain_login(who, at_ms, method)
        return at_ms + 1_000

    def plain_login(
        self,
        who: Presence,
        at_ms: int,
        method: str,
        *,
        success: bool = True,
        incident: Incident | None = None,
    ) -> str:
        """One login event; returns its ``event_id``."""
        phone = self._population.phone_of(who.user)
        own = f'"phone":"{phone}","method":"{method}","success":{"true" if success else "false"}'
        return self._outbox.add(events.LOGIN.topic, who, at_ms, own, incident)

    def verification(self, who: Presence, at_ms: int, purpose: str) -> int:
        """A code by SMS: sent and verified, or sent again after it failed or expired; returns its end."""
        draw = self._random.random
        start = f'"phone":"{self._population.phone_of(who.user)}","purpose":"{purpose}","result":'
        topic = events.MESSAGE_VERIFICATION.topic
        self._outbox.add(topic, who, at_ms, f'{start}"sent"')
        at_ms += 3_000 + int(draw() * 9_000)
        trouble = draw()
        if trouble < 0.08:
            self._outbox.add(topic, who, at_ms, f'{start}"{"failed" if trouble < 0.06 else "expired"}"')
            at_ms += 4_000
            self._outbox.add(topic, who, at_ms, f'{start}"sent"')
            at_ms += 5_000
        self._outbox.add(topic, who, at_ms, f'{start}"verified"')
        return at_ms + 300

    def task_step(self, who: Presence, at_ms: int) -> None:
        """The next step of the user's task; the last one pays."""
        draw = self._random.random
        user = who.user
        if at_ms < self._outbox.start_ms:
            self._outbox.skipped += 1
            return
        number, step = user.task or (int(draw() * len(_TASK_SIZES)), 1)
        steps = _TASK_SIZES[number % len(_TASK_SIZES)]
        task_id = f"t-{number:03d}"
        self._outbox.add(
            events.TASK.topic, who, at_ms, f'"task_id":"{task_id}","step":{step},"steps":{steps}'
        )
        if step == steps:
            self._outbox.add_credit(who, at_ms + 400, Credit("task", 20 + 15 * steps, task_id))
            user.task = (number + 1, 1)
        else:
            user.task = (number, step + 1)

    def signup(self, who: Presence, at_ms: int) -> int:
        """A new account: a code by SMS, the first login, the welcome credit; returns the end."""
        at_ms = self.verification(who, at_ms, "signup")
        self.plain_login(who, at_ms, "sms")
        self._outbox.add_credit(who, at_ms + 500, _SIGNUP)
        return at_ms + 800

    def invite(self, who: Presence, invitee: User, at_ms: int) -> None:
        """A newcomer signs up at home and names ``who`` as inviter, which pays."""
        if at_ms < self._outbox.start_ms:
            self._outbox.skipped += 6
            return
        there = Presence(invitee, invitee.device.device_id, self._population.address_of(invitee, at_ms))
        self.invitation(who, there, self.signup(there, at_ms))

    def invitation(
        self, who: Presence, invitee: Presence, at_ms: int, incident: Incident | None = None
    ) -> str:
        """The invitation as the log has it, and its credit; returns its ``event_id``."""
        user = invitee.user
        channel = _CHANNELS[int(self._random.random() * len(_CHANNELS))]
        event_id = self._outbox.add(
            events.INVITE.topic,
            who,
            at_ms,
            f'"invitee_id":"{user.user_id}","invitee_phone":"{self._population.phone_of(user)}",'
            f'"invitee_device_id":"{invitee.device_id}","invitee_ip":"{invitee.ip}","channel":"{channel}"',
            incident,
        )
        self._outbox.add_credit(who, at_ms + 700, _INVITE)
        return event_id

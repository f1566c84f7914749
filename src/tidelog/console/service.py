"""The console itself: its clusters, its history, sessions, audit log. What the API works on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.console.auth.audit import AuditLog, now_ms
from tidelog.console.auth.login import ScramLogin
from tidelog.console.auth.oidc import LOGIN_COOKIE, OidcLogin
from tidelog.console.auth.person import Account, Person, everybody, matches, person_of
from tidelog.console.auth.sessions import COOKIE, Session, Sessions
from tidelog.console.auth.tokens import Tokens
from tidelog.console.records.decoding.registry import Registry
from tidelog.console.records.export import ParquetExportSlots
from tidelog.console.records.masking import Mask
from tidelog.console.refusal import not_found
from tidelog.console.settings import ConsoleSettings, Role
from tidelog.console.watching.history import History
from tidelog.console.watching.watched_cluster import BrokerPages, WatchedCluster

if TYPE_CHECKING:
    from tidelog.client.admin.async_admin import AsyncAdmin

_DEFAULT_SESSION_HOURS = 12.0


class Console:
    """Started on the loop that serves it."""

    def __init__(
        self,
        settings: ConsoleSettings,
        telling: Callable[[AsyncAdmin], BrokerPages] | None = None,
    ) -> None:
        self.settings = settings
        self.audit = AuditLog(settings.data_dir / "audit.jsonl")
        self.history = History(settings.data_dir / "history.sqlite", settings.history_days)
        self.clusters = {
            each.name: WatchedCluster(each, self.history, refresh_s=settings.refresh_s, telling=telling)
            for each in settings.clusters
        }
        self.registries = {
            each.name: Registry(each.registry) for each in settings.clusters if each.registry is not None
        }
        """Of clusters that have one."""
        hours = settings.login.session_hours if settings.login else _DEFAULT_SESSION_HOURS
        self.sessions = Sessions(hours * 3600, time.monotonic)
        self.cookie = f"{COOKIE}-{settings.listen.port}"
        self.login_cookie = f"{LOGIN_COOKIE}-{settings.listen.port}"
        self.parquet_export_slots = ParquetExportSlots()
        self.stopping = asyncio.Event()
        """Set when streams to browsers shall end."""
        self._unfinished: set[asyncio.Future[str]] = set()
        self._most = Role.VIEWER if settings.read_only else Role.ADMIN
        self.login: ScramLogin | None = None
        self.oidc: OidcLogin | None = None
        if settings.login is not None and settings.login.scram:
            users_of = self.clusters[settings.login.cluster].settings
            self.login = ScramLogin(users_of, settings.login.mechanism, time.monotonic)
        if settings.login is not None and settings.login.oidc is not None:
            self.oidc = OidcLogin(settings.login.oidc, settings.oidc_redirect_url, time.monotonic)
        self.tokens: Tokens | None = None
        if settings.mcp is not None and self.has_logins:
            self.tokens = Tokens(settings.data_dir / "tokens.json", settings.mcp.token_days, now_ms)

    def start(self) -> None:
        """Begin to watch the clusters."""
        for each in self.clusters.values():
            each.start()

    async def close(self) -> None:
        """Stop; everything that was seen is on disk."""
        self.stopping.set()
        for work in self._unfinished:
            work.cancel()
        await asyncio.gather(*self._unfinished, return_exceptions=True)
        await asyncio.gather(*(each.close() for each in self.clusters.values()))
        if self.oidc is not None:
            self.oidc.close()
        await asyncio.gather(*(each.close() for each in self.registries.values()))
        await self.history.close()
        self.audit.close()

    def finish(self, work: asyncio.Future[str]) -> None:
        """Let a change go on for which nobody waits any more, until the console ends."""
        self._unfinished.add(work)
        work.add_done_callback(self._finished)

    def _finished(self, work: asyncio.Future[str]) -> None:
        self._unfinished.discard(work)
        if not work.cancelled():
            work.exception()  # a refusal, which is in the audit log

    def person(self, session: Session) -> Person | None:
        """Who a session belongs to; None where somebody has to log in first."""
        return session.person if self.has_logins else everybody(self._most)

    @property
    def has_logins(self) -> bool:
        """Whether people have to log in."""
        return self.login is not None or self.oidc is not None

    def named(self, account: Account, *, read_only: bool = False) -> Person:
        """A user who has logged in; where there are two ways to do so, his name says by which."""
        both = self.login is not None and self.oidc is not None
        shown = f"{account.way.value}:{account.user}" if both and account.user else account.user
        most = Role.VIEWER if read_only else self._most
        return person_of(account, self.settings.grants, most, shown=shown)

    def cluster(self, name: str, person: Person) -> WatchedCluster:
        """A cluster by its name in the console; who names another is told of those that he may see."""
        found = self.clusters.get(name)
        if found is None:
            others = ", ".join(each for each in self.clusters if person.role(each) >= Role.VIEWER)
            raise not_found(f"cluster {name} does not exist; your clusters: {others or 'none'}")
        return found

    def mask(self, person: Person, cluster: str, topic: str, *, unmasked: bool) -> Mask:
        """What of a topic's records is hidden from somebody; ``unmasked`` asks for what he may see."""
        rules = [each for each in self.settings.masks if matches(topic, each.topics)]
        if unmasked:
            # Not what he may do here: a read-only console bounds changes, not what a role may see.
            role = person.granted(cluster, topic)
            rules = [each for each in rules if role < each.shown_to]
        return Mask(rules)

"""Brings access control up: rules loaded, super users known, logs open, before anybody is served."""

from __future__ import annotations

from pathlib import Path

from tidelog.broker.access.access_log import AccessLog
from tidelog.broker.access.authorization import Authorization
from tidelog.clock import Clock
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.options.authorizer_options import super_users
from tidelog.custom_class import is_custom_class
from tidelog.errors import ConfigError
from tidelog.metadata.acl_store import AclStore
from tidelog.metadata.store import MetadataStore, SharedStore
from tidelog.security.acls.authorizer import Authorizer


async def open_authorization(
    config: BrokerConfig, store: MetadataStore, shared: SharedStore | None, clock: Clock
) -> Authorization:
    """The access control that the options ask for; ``shared`` is the store if others write to it too."""
    audit_file = config.optional_str("tidelog.audit.log.file")
    audit_topic = config.optional_str("tidelog.audit.log.topic")
    file: AuditFile | None = None
    buffer: AuditBuffer | None = None
    if audit_topic is not None:
        from tidelog.broker.access.audit_topic import AuditBuffer

        buffer = AuditBuffer(clock)
    if audit_file is not None:
        from tidelog.broker.access.audit_file import AuditFile

        try:
            file = AuditFile(Path(audit_file), clock)
        except OSError as error:
            raise ConfigError(
                f"tidelog.audit.log.file: {audit_file} cannot be written ({error.strerror}): name a file in "
                "a directory that exists and that the broker may write to"
            ) from error
    log = AccessLog(clock, file, audit_topic, buffer)
    name = config.str("authorizer.class.name").strip()
    if is_custom_class(name):
        from tidelog.broker.access.custom_authorization import custom_authorization

        try:
            return custom_authorization(
                name, config.without_passwords, super_users(config.str("super.users")), log
            )
        except BaseException:
            log.close()
            raise
    try:
        acls = await AclStore.open(store, shared, clock)
    except BaseException:
        log.close()
        raise
    authorizer = Authorizer(
        acls.rules,
        super_users(config.str("super.users")),
        open_without_rules=config.bool("allow.everyone.if.no.acl.found"),
    )
    return Authorization(authorizer, acls, log)

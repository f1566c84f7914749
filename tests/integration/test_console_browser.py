"""The console's pages in a real browser: the machine's Chromium, driven by Playwright."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer as LibrdkafkaProducer
from playwright.sync_api import Page, Route, expect
from tests.integration.sasl_setup import ADMIN, closed_broker
from tests.rigs.console_browser import go, heading, needs_chromium
from tests.rigs.console_thread import ConsoleThread, console_settings
from tests.rigs.waiting import wait_until

from tidelog import Consumer, Producer, TopicPartition
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.scram_users import ScramUpsertion
from tidelog.console.auth.person import Account
from tidelog.console.settings import ClusterSettings, Grant, LoginSettings, MaskRule, Role
from tidelog.testing import LocalBroker, broker

pytestmark = needs_chromium
PHONE = "13800138000"
HOSTILE = (
    b"<script>document.body.dataset.owned = 1</script>",
    b'<img src=x onerror="document.body.dataset.owned = 1">',
    b"\x00\x1b[31m \xe2\x80\xae reversed",
    b"\xff\xfe no text",
    b'{"<b>name</b>": "</pre><script>document.body.dataset.owned = 1</script>", "__proto__": {"x": 1}}',
    b"x" * 900_000,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBroker]:
    with broker(topics={"orders": 2, "hostile": 1}) as running:
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for number in range(100):
                value = json.dumps({"id": number, "price": number * 10})
                producer.send("orders", value.encode(), key=b"o-%d" % number, headers=[("trace", b"t")])
            for hostile in HOSTILE:
                headers = [("<u>header</u>", b"<script>document.body.dataset.owned = 1</script>")]
                producer.send("hostile", hostile, key=b"<i>key</i>", headers=headers)
        yield running


@pytest.fixture(scope="module")
def console(cluster: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleThread]:
    settings = console_settings(tmp_path_factory.mktemp("console"), cluster.bootstrap_servers)
    with ConsoleThread(settings) as running:
        yield running


def name(stem: str) -> str:
    return f"{stem}-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_opens_in_both_themes(page: Page, console: ConsoleThread, theme: str) -> None:
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    titles = {
        "overview": "Overview",
        "topology": "Topology",
        "topics": "Topics",
        "groups": "Groups",
        "spark": "Spark",
        "brokers": "Brokers",
        "clients": "Clients",
        "transactions": "Transactions",
        "access": "Access",
        "audit": "Audit",
        "topics/orders/partitions": "orders",
        "topics/orders/configs": "orders",
        "topics/orders/groups": "orders",
        "brokers/1": "Broker 1",
    }
    for place, title in titles.items():
        go(page, console, place)
        heading(page, title)
        expect(page.locator(".waiting")).to_have_count(0)
        expect(page.locator(".page > .refusal")).to_have_count(0)
    assert page.evaluate("document.documentElement.dataset.theme") == theme


def test_a_record_of_librdkafka_is_seen_live(
    page: Page, console: ConsoleThread, cluster: LocalBroker
) -> None:
    topic = cluster.create_topic(name("live"))
    go(page, console, "topics", topic)
    expect(page.get_by_text("No messages")).to_be_visible()
    page.get_by_label("Start position").select_option("tail")
    expect(page.get_by_text("0 received")).to_be_visible()
    producer = LibrdkafkaProducer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, b"fresh from librdkafka", b"k")
    producer.flush()
    expect(page.get_by_text("fresh from librdkafka")).to_be_visible()


def test_records_are_filtered_opened_and_exported(page: Page, console: ConsoleThread, tmp_path: Path) -> None:
    go(page, console, "topics", "orders")
    expect(page.locator(".records tbody tr")).to_have_count(50)
    page.get_by_label("Filter").fill("value.price >= 980")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".records tbody tr")).to_have_count(2)
    page.locator(".records tbody tr").first.click()
    expect(page.locator(".json .k").first).to_be_visible()
    page.get_by_role("button", name="Hex").first.click()
    expect(page.locator(".value pre").first).to_contain_text("00000000")
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    download.value.save_as(tmp_path / "file")
    lines = (tmp_path / "file").read_text().splitlines()
    assert {json.loads(json.loads(each)["value"])["id"] for each in lines} == {98, 99}
    page.get_by_label("Filter").fill("value.price >")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("alert")).to_contain_text("invalid filter")
    page.get_by_role("button", name="Export").click()
    page.get_by_role("button", name="Download").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("invalid filter")


def test_a_parquet_file_is_downloaded_and_what_is_against_it_is_said(
    page: Page, console: ConsoleThread, tmp_path: Path
) -> None:
    go(page, console, "topics", "orders")
    expect(page.locator(".records tbody tr")).to_have_count(50)
    with ExitStack() as held:
        for _ in range(4):
            held.enter_context(console.console.parquet_export_slots.take(None))
        page.get_by_role("button", name="Export").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Format").select_option("parquet")
        dialog.get_by_role("button", name="Download").click()
        expect(dialog.get_by_role("alert")).to_contain_text("4 Parquet exports are already running")
    with page.expect_download() as download:
        dialog.get_by_role("button", name="Download").click()
    expect(dialog).to_have_count(0)
    assert download.value.suggested_filename == "orders.parquet"
    download.value.save_as(tmp_path / "file")
    assert pq.read_table(tmp_path / "file").num_rows == 100


def test_a_record_is_produced_and_sent_again(
    page: Page, console: ConsoleThread, cluster: LocalBroker
) -> None:
    topic, other = cluster.create_topic(name("written")), cluster.create_topic(name("copied"))
    go(page, console, "topics", topic)
    page.get_by_role("button", name="Produce").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Key", exact=True).fill("k-1")
    dialog.get_by_label("Value", exact=True).fill("by hand")
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog.get_by_text("Written to partition 0 at offset 0")).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Search").click()
    page.get_by_text("by hand").click()
    page.get_by_role("button", name="Resend").click()
    dialog.get_by_label("To topic").fill(other)
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(dialog.get_by_text("Written to partition 0 at offset 0")).to_be_visible()


def test_a_record_is_sent_again_with_one_header_changed_and_the_others_as_they_are(
    page: Page, console: ConsoleThread, cluster: LocalBroker
) -> None:
    topic, other = cluster.create_topic(name("headed")), cluster.create_topic(name("copied"))
    given = [
        ("trace", b"abc"),
        ("lines", b" one\r\ntwo\n "),
        ("long", b"x" * 5000),
        ("a:b", b"\xff"),
        ("none", None),
        ("gone", b"1"),
    ]
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(topic, b"with headers", headers=given)
    go(page, console, "topics", topic)
    page.get_by_text("with headers").click()
    page.get_by_role("button", name="Resend").click()
    dialog = page.get_by_role("dialog")
    rows = dialog.locator("table.headers tr")
    # What is cut or no text is kept or removed.
    expect(dialog.get_by_role("button", name="Edit")).to_have_count(3)
    rows.filter(has_text="trace").get_by_role("button", name="Edit").click()
    expect(dialog.get_by_label("Header value")).to_have_value("abc")
    dialog.get_by_label("Header value").fill("another: trace")
    rows.filter(has_text="lines").get_by_role("button", name="Edit").click()
    rows.nth(1).get_by_role("button", name="Undo").click()
    rows.filter(has_text="gone").get_by_role("button", name="Remove").click()
    dialog.get_by_role("button", name="Add header").click()
    rows.last.get_by_label("Header name").fill("why")
    rows.last.get_by_label("Header value").fill("two\nlines")
    dialog.get_by_label("To topic").fill(other)
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(dialog.get_by_text("Written to partition 0 at offset 0")).to_be_visible()
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(other, 0)])
        consumer.seek_to_beginning()
        (copy,) = consumer.poll(30.0, 1)
    assert list(copy.headers) == [("trace", b"another: trace"), *given[1:5], ("why", b"two\nlines")]


def test_headers_that_are_not_shown_are_said_to_be_there_and_sent_again(
    page: Page, console: ConsoleThread, cluster: LocalBroker
) -> None:
    topic = cluster.create_topic(name("headers"))
    written = [("h", b"%d" % number) for number in range(502)]
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(topic, b"value", headers=written)
    go(page, console, "topics", topic)
    page.locator(".records tbody tr").first.click()
    expect(page.get_by_text("2 more headers are not shown.")).to_be_visible()
    page.get_by_role("button", name="Resend").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Remove").first.click()
    dialog.get_by_role("button", name="Add header").click()
    dialog.get_by_label("Header name").fill("new")
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_text("Written to partition")).to_be_visible()
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 1)
        (sent,) = consumer.poll(30.0, 1)
    assert list(sent.headers) == [*written[1:], ("new", b"")]


def test_what_strangers_wrote_is_shown_inert(page: Page, console: ConsoleThread) -> None:
    go(page, console, "topics", "hostile")
    rows = page.locator(".records tbody tr")
    expect(rows).to_have_count(len(HOSTILE))
    for index in reversed(range(len(HOSTILE))):
        rows.nth(index).click()
    expect(page.locator("tr.detail")).to_have_count(len(HOSTILE))
    expect(page.get_by_text("<script>document.body.dataset.owned = 1</script>").first).to_be_visible()
    expect(page.get_by_text("U+202E").first).to_be_visible()
    expect(page.get_by_text("truncated").first).to_be_visible()
    assert page.locator(".page script, .page img, .page u, .page i:not(.meter i)").count() == 0
    assert page.evaluate("document.body.dataset.owned") is None
    go(page, console, "topics", "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    expect(page.locator(".refusal")).to_be_visible()
    assert page.locator(".page img").count() == 0


def test_a_group_with_a_hostile_name_is_found_and_opened(
    page: Page, console: ConsoleThread, cluster: LocalBroker
) -> None:
    group = f"<img src=x onerror='document.body.dataset.owned=1'>/../%2F {uuid.uuid4().hex[:8]}"
    cluster.admin.alter_group_offsets(group, {TopicPartition("orders", 0): 1})
    go(page, console, "groups")
    page.get_by_role("link", name=group).click()
    heading(page, group)
    expect(page.get_by_role("cell", name="orders")).to_be_visible()
    go(page, console, "topology")
    expect(page.locator(".topology a").first).to_be_visible()
    assert page.locator(".page img").count() == 0
    assert page.evaluate("document.body.dataset.owned") is None


def test_offsets_are_moved_after_a_plan(page: Page, console: ConsoleThread, cluster: LocalBroker) -> None:
    group = name("late")
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["orders"])
        read = 0
        while read < 100:
            read += len(consumer.poll(1.0))
        consumer.commit()
    go(page, console, "groups", group)
    expect(page.get_by_text("0 messages behind")).to_be_visible()
    page.get_by_role("button", name="Reset offsets").click()
    page.get_by_role("dialog").get_by_role("button", name="Preview").click()
    plan = page.get_by_role("dialog", name="Reset offsets: preview")
    expect(plan.locator("tbody tr")).to_have_count(2)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert admin.describe_group_lag([group])[group].total == 0
        plan.get_by_role("button", name="Apply changes").click()
        expect(page.get_by_text("100 messages behind")).to_be_visible()
        assert admin.describe_group_lag([group])[group].total == 100


def test_a_dialog_does_nothing_twice_whatever_is_typed_meanwhile(
    page: Page, console: ConsoleThread, cluster: LocalBroker
) -> None:
    group = name("slow")
    cluster.admin.alter_group_offsets(group, {TopicPartition("orders", 0): 1})
    held: list[Route] = []
    page.route("**/reset", lambda route: held.append(route))
    go(page, console, "groups", group)
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    button, topic = dialog.get_by_role("button", name="Preview"), dialog.get_by_label("Topic")
    with page.expect_request("**/reset"):
        button.click()
    topic.fill("another")
    expect(button).to_be_disabled()
    topic.press("Enter")
    dialog.locator("form").evaluate("form => form.requestSubmit()")
    for each in held:
        each.continue_()
    plan = page.get_by_role("dialog", name="Reset offsets: preview")
    expect(plan.locator("tbody tr")).to_have_count(1)
    assert len(held) == 1


def test_dead_letters_are_redriven_from_the_page(
    page: Page, console: ConsoleThread, cluster: LocalBroker
) -> None:
    letters, origin = cluster.create_topic(name("x_dead_letters")), cluster.create_topic(name("origin"))
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(letters, b"mend me", headers=[("topic", origin.encode()), ("reason", b"bad")])
    go(page, console, "topics", letters)
    expect(page.get_by_text("mend me")).to_be_visible()
    page.get_by_role("button", name="Redrive").click()
    page.get_by_role("dialog").get_by_role("button", name="Preview").click()
    expect(page.get_by_text(f"To send: {origin}: 1")).to_be_visible()
    page.get_by_role("dialog").get_by_role("button", name="Send").click()
    expect(page.get_by_text(f"Sent: {origin}: 1")).to_be_visible()


def test_a_topic_is_created_and_deleted_only_behind_its_typed_name(
    page: Page, console: ConsoleThread
) -> None:
    topic = name("made-here")
    go(page, console, "topics")
    page.get_by_role("button", name="Create topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(topic)
    dialog.get_by_role("button", name="Create", exact=True).click()
    heading(page, topic)
    page.get_by_role("button", name="Delete", exact=True).click()
    delete = dialog.get_by_role("button", name="Delete")
    expect(delete).to_be_disabled()
    dialog.get_by_role("textbox").fill(topic)
    delete.click()
    heading(page, "Topics")
    page.get_by_label("Search topics").fill(topic)
    expect(page.get_by_text("No topics match")).to_be_visible()


def test_hundreds_of_topics_are_paged_searched_and_starred(
    page: Page, console: ConsoleThread, cluster: LocalBroker
) -> None:
    stem = name("many")
    cluster.create_topics({f"{stem}-{number:03}": 1 for number in range(150)})
    go(page, console, "topics")
    search = page.get_by_label("Search topics")
    expect(search).to_be_visible()
    page.keyboard.press("/")
    expect(search).to_be_focused()
    search.fill(stem)
    rows = page.locator("tbody tr")
    expect(page.get_by_text("1–100 of 150")).to_be_visible()
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="Next").click()
    expect(rows).to_have_count(50)
    search.fill(f"{stem}-149")
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Favorite").click()
    search.fill("")
    page.get_by_label("Favorites", exact=True).check()
    expect(rows).to_have_count(1)


def test_what_a_page_that_was_left_has_asked_for_is_given_up(page: Page, console: ConsoleThread) -> None:
    """The page's fixture fails where a script has failed."""
    go(page, console, "topics")
    heading(page, "Topics")
    held: list[Route] = []
    page.route("**/topics?**", lambda route: held.append(route))
    with page.expect_request("**/topics?**"):
        page.get_by_label("Search topics").fill("ord")
    go(page, console, "groups")
    heading(page, "Groups")
    expect(page.locator("#failure")).to_be_empty()


def test_a_pointer_that_is_held_down_while_a_page_opens_keeps_nobody_from_it(
    page: Page, console: ConsoleThread
) -> None:
    def hold_down(route: Route) -> None:
        page.mouse.move(600, 400)
        page.mouse.down()
        route.continue_()

    page.route("**/api/session", hold_down)
    with page.expect_response("**/topics?**"):  # the page is made by now, and waits for the pointer
        go(page, console, "topics")
    page.mouse.up()
    heading(page, "Topics")


def test_what_a_click_could_not_do_is_said(page: Page, console: ConsoleThread) -> None:
    go(page, console, "topics")
    expect(page.get_by_role("link", name="hostile", exact=True)).to_be_visible()
    page.route("**/topics?**", lambda route: route.abort())
    page.get_by_label("Search topics").fill("ord")
    expect(page.locator("#failure").get_by_role("alert")).to_have_text("The console is unreachable.")
    expect(page.get_by_role("link", name="hostile", exact=True)).to_be_visible()
    page.unroute("**/topics?**")
    expect(page.locator("#failure")).to_be_empty()
    page.route("**/topics?**", lambda route: route.abort())
    page.get_by_label("Search topics").fill("orde")
    expect(page.locator("#failure").get_by_role("alert")).to_have_text("The console is unreachable.")
    go(page, console, "groups")
    heading(page, "Groups")
    expect(page.locator("#failure")).to_be_empty()


@pytest.mark.parametrize(
    ("status", "said"),
    [(200, "The console is unreachable."), (502, "The console responded with status 502.")],
)
def test_an_answer_that_is_cut_or_not_the_consoles_is_no_data(
    page: Page, console: ConsoleThread, status: int, said: str
) -> None:
    go(page, console, "topics")
    expect(page.get_by_role("link", name="hostile", exact=True)).to_be_visible()
    page.route("**/topics?**", lambda route: route.fulfill(status=status, body='{"total": 1'))
    page.get_by_label("Search topics").fill("ord")
    expect(page.locator("#failure").get_by_role("alert")).to_have_text(said)
    expect(page.get_by_role("link", name="hostile", exact=True)).to_be_visible()


def test_pages_speak_chinese(page: Page, console: ConsoleThread) -> None:
    go(page, console, "topics")
    page.get_by_label("Language").select_option("zh")
    heading(page, "主题")
    expect(page.get_by_role("link", name="消费组")).to_be_visible()
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    page.reload()
    heading(page, "主题")


def test_a_broker_that_goes_and_comes_back_is_noticed(page: Page, tmp_path: Path) -> None:
    with (
        broker(topics=["there"], data_dir=tmp_path / "broker") as running,
        ConsoleThread(console_settings(tmp_path / "console", running.bootstrap_servers)) as console,
    ):
        go(page, console, "overview")
        expect(page.get_by_text("healthy")).to_be_visible()
        running.kill()
        expect(page.get_by_text("The cluster has not responded since")).to_be_visible()
        running.restart()
        expect(page.get_by_text("The cluster has not responded since")).to_have_count(0)
        expect(page.get_by_text("The cluster responds again").first).to_be_visible()


def test_pages_with_charts_say_that_there_is_no_history(page: Page, tmp_path: Path) -> None:
    with (
        broker(topics=["there"]) as running,
        ConsoleThread(console_settings(tmp_path, running.bootstrap_servers)) as console,
    ):
        running.admin.alter_group_offsets("readers", {TopicPartition("there", 0): 0})
        go(page, console, "groups", "readers")
        expect(page.locator("figure.chart").first).to_be_visible()
        console.break_history()
        expect(page.get_by_role("status")).to_contain_text("charts and events are incomplete")
        expect(page.get_by_text("No data: the console cannot access its history.").first).to_be_visible()
        page.get_by_label("Language").select_option("zh")
        expect(page.get_by_role("status")).to_contain_text("控制台无法访问其历史数据")
        expect(page.get_by_text("没有数据：控制台无法访问其历史数据。").first).to_be_visible()
        go(page, console, "overview")
        expect(page.locator(".refusal").first).to_contain_text(str(tmp_path / "history.sqlite"))
        console.console.history._is_open = False  # it can be opened again
        expect(page.get_by_role("status")).to_be_empty()


def test_a_stream_that_something_else_has_answered_is_asked_for_again(
    page: Page, console: ConsoleThread
) -> None:
    page.route("**/live", lambda route: route.fulfill(status=502))
    go(page, console, "topics")
    heading(page, "Topics")
    expect(page.locator("#notice")).to_contain_text("Retrying")
    page.unroute("**/live")
    expect(page.locator("#notice")).to_be_empty()


def test_who_has_no_session_any_more_is_asked_to_log_in_without_a_click(
    page: Page, cluster: LocalBroker, tmp_path: Path
) -> None:
    settings = console_settings(
        tmp_path, cluster.bootstrap_servers, login=LoginSettings("main"), grants=(Grant("*", Role.VIEWER),)
    )
    with ConsoleThread(settings) as running:
        inner = running.console
        session = inner.sessions.begin(inner.named(Account("viv")))
        page.context.add_cookies([{"name": inner.cookie, "value": session.id, "url": running.url}])
        with page.expect_response("**/live"):
            go(page, running, "topics")
        heading(page, "Topics")
        inner.sessions.end(session)
        expect(page.get_by_label("Password")).to_be_visible()


def test_people_log_in_with_roles_and_masks(page: Page, tmp_path: Path) -> None:
    with closed_broker(tmp_path / "closed") as running:
        options = {**ADMIN, "bootstrap.servers": running.bootstrap}
        with Admin(options) as admin:
            users = [ScramUpsertion(each, f"{each}-secret") for each in ("viv", "ola")]
            for result in admin.alter_user_scram_credentials(users):
                result.raise_for_error()
        with Producer(options) as producer:
            producer.send("people", json.dumps({"phone": PHONE}).encode())
        settings = console_settings(
            tmp_path / "console",
            running.bootstrap,
            clusters=(ClusterSettings("main", options),),
            login=LoginSettings("main"),
            grants=(Grant("viv", Role.VIEWER, topics=("people",)), Grant("ola", Role.OPERATOR)),
            masks=(MaskRule(fields=("phone",)),),
        )
        with ConsoleThread(settings) as console:
            _check_login(page, console)
            _check_viewer(page, console)
            _check_operator(page, console)


def _log_in(page: Page, user: str, password: str) -> None:
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def _check_login(page: Page, console: ConsoleThread) -> None:
    go(page, console, "topics", "people")
    _log_in(page, "viv", "wrong")
    expect(page.get_by_role("alert")).to_contain_text("wrong user name or password")
    with console.client() as api:
        assert api.http.get("/clusters/main/topics").status_code == 401


def _check_viewer(page: Page, console: ConsoleThread) -> None:
    _log_in(page, "viv", "viv-secret")
    heading(page, "people")
    expect(page.get_by_text(re.compile(r'"13\*\*\*\*00"'))).to_be_visible()
    expect(page.get_by_role("button", name="Produce")).to_have_count(0)
    page.get_by_label("Show masked fields").check()
    expect(page.get_by_text(re.compile(r'"13\*\*\*\*00"'))).to_be_visible()
    with console.client() as api:
        assert api.log_in("viv", "viv-secret").status_code == 200
        assert (
            PHONE
            not in api.http.get("/clusters/main/topics/people/messages", params={"unmasked": "true"}).text
        )
        assert api.http.get("/clusters/main/topics/__consumer_offsets").status_code in (403, 404)
        refused = api.try_change("POST", "/clusters/main/topics/people/messages", value="x")
        assert refused.status_code == 403
        assert api.http.get("/clusters/main/acls").status_code == 403


def _check_operator(page: Page, console: ConsoleThread) -> None:
    page.get_by_role("button", name="Log out").click()
    _log_in(page, "ola", "ola-secret")
    heading(page, "people")
    expect(page.get_by_role("button", name="Produce")).to_be_visible()
    page.get_by_label("Show masked fields").check()
    expect(page.get_by_text(PHONE)).to_be_visible()
    wait_until(
        lambda: console.settings.data_dir.joinpath("audit.jsonl").read_text().count('"unmask"'), "the audit"
    )

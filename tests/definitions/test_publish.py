"""Publishing: all or nothing, versions that never change, and the command's words and exit codes."""

from __future__ import annotations

import importlib
import json
import sys
import threading
from dataclasses import replace

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from orchestrator.core.actor import Actor
from orchestrator.definitions import publish as publishing
from orchestrator.definitions import registry
from orchestrator.definitions.errors import DefinitionError, PackageError
from orchestrator.definitions.publish import check, publish
from orchestrator.definitions.spec import WorkflowSpec
from orchestrator.models import AuditRecord, Definition

HANDLERS = """
from orchestrator.sdk import compensation, step

@step("pub-shop.pay")
def pay(ctx): ...

@step("pub-pack")
def pack(ctx): ...

@compensation("pub-shop.refund")
def refund(ctx): ...
"""
SHOP = """\
workflow: pub-shop
version: {version}
steps:
  - id: pay
    timeout: {timeout}
    compensate: refund
  - id: pub-pack
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A package ``pub_shop``; call it with files to write into it."""
    monkeypatch.setattr(registry, "_handlers", {"step": {}, "compensation": {}})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "pub_shop"
    folder.mkdir()
    (folder / "__init__.py").write_text(HANDLERS)
    importlib.invalidate_caches()

    def write(**files: str) -> None:
        for name, text in files.items():
            (folder / f"{name}.yaml").write_text(text)

    yield write
    sys.modules.pop("pub_shop", None)


def text(version: int = 1, timeout: str = "1m") -> str:
    return SHOP.format(version=version, timeout=timeout)


def problems(packages=("pub_shop",)) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        publish(packages)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.django_db
def test_a_first_version_is_stored_whole(shop):
    shop(shop=text())
    (result,) = publish(["pub_shop"], actor=Actor("ada", "admin"))
    assert (result.workflow, result.version, result.status) == ("pub-shop", 1, "new")
    row = Definition.objects.get(workflow="pub-shop")
    assert row.source == text()
    assert (row.package, row.origin) == ("pub_shop", "pub_shop/shop.yaml")
    assert WorkflowSpec.model_validate(row.spec).step("pay").timeout == 60.0
    record = AuditRecord.objects.get(action="publish")
    assert (record.actor, record.role, record.subject) == ("ada", "admin", "pub-shop v1")
    assert record.before == {"version": None}
    assert record.after["version"] == 1


@pytest.mark.django_db
def test_publishing_again_changes_nothing(shop):
    shop(shop=text())
    publish(["pub_shop"])
    shop(shop="# a comment\n" + text())
    (result,) = publish(["pub_shop", "pub_shop"])
    assert result.status == "unchanged"
    assert Definition.objects.count() == 1
    assert AuditRecord.objects.filter(action="publish").count() == 1
    assert not Definition.objects.get().source.startswith("#")


@pytest.mark.django_db
def test_other_defaults_in_the_settings_do_not_change_a_published_version(shop, settings):
    shop(shop="workflow: pub-shop\nversion: 1\nsteps: [{id: pay}]\n")
    publish(["pub_shop"])
    settings.ORCHESTRATOR = replace(settings.ORCHESTRATOR, default_timeout=1.0, default_deadline=2.0)
    assert publish(["pub_shop"])[0].status == "unchanged"
    assert Definition.objects.get().spec["deadline"] != 2.0
    shop(next="workflow: pub-shop\nversion: 2\nsteps: [{id: pay}]\n")
    publish(["pub_shop"])
    assert Definition.objects.get(version=2).spec["deadline"] == 2.0


@pytest.mark.django_db
def test_changed_content_under_a_published_number_is_refused(shop):
    shop(shop=text())
    publish(["pub_shop"])
    shop(shop=text(timeout="2m"))
    (problem,) = problems()
    assert problem.startswith("pub_shop/shop.yaml:2: pub-shop version 1 is published already with other content")
    assert "write `version: 2`" in problem
    assert Definition.objects.get().spec["steps"][0]["timeout"] == 60.0
    shop(shop=text(version=2, timeout="2m"))
    assert publish(["pub_shop"])[0].status == "new"
    assert AuditRecord.objects.filter(action="publish").latest("id").before == {"version": 1}


@pytest.mark.django_db
def test_one_bad_file_stops_all_and_every_problem_is_told(shop):
    shop(a=text(), b=text(version=2).replace("timeout: 1m", "timeout: soon"), c="workflow: [")
    told = problems()
    assert [problem.split(":")[0] for problem in told] == ["pub_shop/b.yaml", "pub_shop/c.yaml"]
    assert Definition.objects.count() == AuditRecord.objects.count() == 0


@pytest.mark.django_db
def test_an_unregistered_handler_is_refused_with_its_line(shop):
    shop(shop=text() + "  - id: ship\n    compensate: unship\n" + "  - id: post\n    handler: refund\n")
    told = problems()
    assert told[0].startswith("pub_shop/shop.yaml:8: step 'ship': handler 'ship' is not registered")
    assert told[1].startswith("pub_shop/shop.yaml:9: step 'ship': `compensate`: handler 'unship' is not registered")
    assert told[2].startswith("pub_shop/shop.yaml:11: step 'post': handler 'refund' is registered with @compensation")
    assert len(told) == 3
    assert Definition.objects.count() == 0


@pytest.mark.django_db
def test_two_files_with_one_version_are_refused(shop):
    shop(a=text(), b=text())
    (problem,) = problems()
    assert problem.startswith("pub_shop/b.yaml:2: pub-shop version 1 is also defined in pub_shop/a.yaml")


@pytest.mark.django_db
def test_several_versions_can_stand_side_by_side(shop):
    shop(a=text(), b=text(version=2, timeout="2m"))
    assert [(one.version, one.status) for one in publish(["pub_shop"])] == [(1, "new"), (2, "new")]


@pytest.mark.django_db
def test_a_cycle_and_a_bomb_leave_the_earlier_version_as_it_is(shop):
    shop(shop=text())
    publish(["pub_shop"])
    shop(shop=text(version=2).replace("  - id: pub-pack", "    after: pub-pack\n  - id: pub-pack"), bomb="a: &a [*a]\n")
    told = problems()
    assert any("cycle: pay -> pub-pack -> pay" in problem for problem in told)
    assert any("contains itself" in problem for problem in told)
    assert [row.version for row in Definition.objects.all()] == [1]


@pytest.mark.django_db
def test_check_stores_nothing_and_tells_the_same(shop):
    shop(shop=text())
    assert check(["pub_shop"])[0].status == "new"
    assert Definition.objects.count() == AuditRecord.objects.count() == 0
    publish(["pub_shop"])
    assert check(["pub_shop"])[0].status == "unchanged"
    shop(shop=text(timeout="2m"))
    with pytest.raises(DefinitionError, match="published already"):
        check(["pub_shop"])


@pytest.mark.django_db
def test_moved_files_are_found_where_they_are_now(shop):
    shop(shop=text())
    publish(["pub_shop"])
    shop(moved=text())
    (publishing.find("pub_shop")[1]).unlink()
    assert publish(["pub_shop"])[0].status == "unchanged"
    assert Definition.objects.get().origin == "pub_shop/moved.yaml"


@pytest.mark.django_db
def test_packages_that_are_none(shop, tmp_path):
    with pytest.raises(PackageError, match=r"holds no \*.yaml definition; looked in pub_shop"):
        publish(["pub_shop"])
    (tmp_path / "pub_module.py").write_text("")
    with pytest.raises(PackageError, match="'pub_module' is a module, not a package"):
        publish(["pub_module"])
    with pytest.raises(PackageError, match="there is no workflow package 'pub_none'"):
        publish(["pub_none"])


def test_find_takes_the_folder_itself_only(shop, tmp_path):
    shop(b=text(), a=text())
    (tmp_path / "pub_shop" / "c.yml").write_text("x")
    (tmp_path / "pub_shop" / ".hidden.yaml").write_text("x")
    (tmp_path / "pub_shop" / "below").mkdir()
    (tmp_path / "pub_shop" / "below" / "d.yaml").write_text("x")
    assert [path.name for path in publishing.find("pub_shop")] == ["a.yaml", "b.yaml", "c.yml"]


@pytest.mark.django_db(transaction=True)
def test_two_publishers_at_once_store_one_version_and_refuse_the_other(shop, monkeypatch):
    """Both have looked before either stores: the second must see the first's row and not overwrite or crash."""
    shop(shop=text())
    barrier = threading.Barrier(2)
    load_all = publishing._load_all
    outcomes: list[str] = []

    def both_look_first(packages):
        found = load_all(packages)
        barrier.wait(timeout=20)
        return found

    def run() -> None:
        try:
            outcomes.append(publish(["pub_shop"])[0].status)
        finally:
            connection.close()

    monkeypatch.setattr(publishing, "_load_all", both_look_first)
    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(outcomes) == ["new", "unchanged"]
    assert Definition.objects.count() == 1


@pytest.mark.django_db
def test_a_publisher_that_was_overtaken_with_other_content_is_refused(shop, monkeypatch):
    shop(shop=text())
    late = publishing._load_all(["pub_shop"])
    shop(shop=text(timeout="2m"))
    publish(["pub_shop"])
    monkeypatch.setattr(publishing, "_load_all", lambda packages: late)
    assert "published already with other content" in problems()[0]


@pytest.mark.django_db
def test_the_command_prints_a_line_for_each_definition(shop, capsys):
    shop(shop=text())
    call_command("publish", "pub_shop", "--check")
    assert capsys.readouterr().out == "pub-shop version 1: can be published\n"
    call_command("publish", "pub_shop")
    assert capsys.readouterr().out == "pub-shop version 1: published\n"
    call_command("publish", "pub_shop")
    assert capsys.readouterr().out == "pub-shop version 1: unchanged\n"


@pytest.mark.django_db
def test_the_command_takes_the_packages_of_the_settings(shop, settings, capsys):
    shop(shop=text())
    settings.ORCHESTRATOR = replace(settings.ORCHESTRATOR, workflows=["pub_shop"])
    call_command("publish", "--json")
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is True
    assert answer["definitions"] == [
        {"workflow": "pub-shop", "version": 1, "status": "new", "file": "pub_shop/shop.yaml"}
    ]


@pytest.mark.django_db
def test_a_refusal_of_the_command_is_exit_code_1_and_one_document(shop, capsys):
    shop(shop=text().replace("1m", "soon"))
    with pytest.raises(CommandError) as caught:
        call_command("publish", "pub_shop", "--json")
    assert caught.value.returncode == 1
    assert "nothing was published: 1 problem\n  pub_shop/shop.yaml:5: step 'pay': `timeout` 'soon'" in str(caught.value)
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert (answer["problems"][0]["line"], answer["problems"][0]["file"]) == (5, "pub_shop/shop.yaml")


def test_a_package_that_is_not_there_is_exit_code_1(shop):
    with pytest.raises(CommandError) as caught:
        call_command("publish", "pub_none")
    assert caught.value.returncode == 1
    assert "there is no workflow package 'pub_none'" in str(caught.value)


def test_bad_usage_is_exit_code_2(settings):
    settings.ORCHESTRATOR = replace(settings.ORCHESTRATOR, workflows=[])
    with pytest.raises(CommandError) as caught:
        call_command("publish")
    assert caught.value.returncode == 2

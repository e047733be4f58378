"""What Airflow finds of an installed wheel: the connection type with its form, and the plugin, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from wheel_support import ROOT, call

ASK = """
import json, logging, warnings
logging.disable()
warnings.simplefilter("ignore")
from airflow import plugins_manager
from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService
from airflow.providers_manager import ProvidersManager

(form,) = (each for each in HookMetaService.hook_meta_data() if each.connection_type == "txbatch")
plugins_manager.ensure_plugins_loaded() if hasattr(plugins_manager, "ensure_plugins_loaded") else None
plugins = plugins_manager._get_plugins()[0] if hasattr(plugins_manager, "_get_plugins") else plugins_manager.plugins
mine = [each for each in plugins if each.name == "txbatch"]
print(json.dumps({
    "provider": ProvidersManager().providers["txbatch"].version,
    "hook": ProvidersManager().hooks["txbatch"].hook_class_name,
    "testable": ProvidersManager().hooks["txbatch"].connection_testable,
    "form": form.model_dump(mode="json"),
    "plugins": [str(each.source) for each in mine], "listeners": sum(len(each.listeners) for each in mine),
}))
"""


def found(environment: Path, folder: Path, plugins: Path) -> dict[str, Any]:
    variables = {"AIRFLOW_HOME": str(folder), "AIRFLOW__CORE__PLUGINS_FOLDER": str(plugins)}
    variables |= {"AIRFLOW__CORE__LOAD_EXAMPLES": "False", "AIRFLOW__CORE__LAZY_DISCOVER_PROVIDERS": "False"}
    told = call([str(environment / "python"), "-c", ASK], folder, **variables)
    assert told.returncode == 0, told.stderr
    answer: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return answer


@pytest.fixture(scope="module")
def airflow(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("airflow")
    return found(environment, folder, folder / "plugins")


def test_the_connection_type_has_a_form(airflow: dict[str, Any]) -> None:
    assert airflow["hook"] == "txbatch.orchestration.hook.TxbatchHook"
    assert airflow["testable"]
    assert set(airflow["form"]["extra_fields"]) == {"sslmode", "sslrootcert"}
    standard = airflow["form"]["standard_fields"]
    assert standard["url_schema"]["title"] == "Database"
    assert not any((standard[name] or {}).get("hidden") for name in ("host", "login", "password", "port"))


def test_the_plugin_comes_by_its_entry_point(airflow: dict[str, Any]) -> None:
    [source] = airflow["plugins"]
    assert "value='txbatch_plugin:TxbatchPlugin', group='airflow.plugins'" in source
    assert airflow["listeners"] == 1


def test_the_plugin_is_loaded_once_beside_this_repositorys_own_folder(environment: Path, tmp_path: Path) -> None:
    beside = found(environment, tmp_path, ROOT / "plugins")
    assert beside["plugins"] == ["$PLUGINS_FOLDER/txbatch_plugin.py"]
    assert beside["listeners"] == 1

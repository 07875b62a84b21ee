"""The progress of a load, from the bars of the libraries and from our own stages."""

from __future__ import annotations

from core.assembly.build import load_engine
from core.contract.config import EngineConfig, ModelConfig
from core.load.bars import DOWNLOAD, WEIGHTS, bars_of, download_options
from core.observe.load_progress import LoadProgress, LoadStage, reporting
from tests.support.stages_seen import StagesSeen


def test_a_load_goes_through_its_stages():
    progress = StagesSeen()
    with reporting(progress):
        load_engine(ModelConfig(), EngineConfig(max_num_seqs=2, max_model_len=64))
    assert [name for name in progress.names if name != "compiling kernels"] == [
        "loading weights",
        "warming up",
    ]
    loaded = [stage for stage in progress.all if stage.name == WEIGHTS]
    assert loaded[-1].done == loaded[-1].total > 1


def test_bytes_of_a_download_are_reported_and_counts_of_files_are_not(capsys):
    progress = LoadProgress()
    bars = bars_of(progress, DOWNLOAD)
    with bars(total=1000, unit="B", unit_scale=True, desc="model.safetensors", initial=100) as bar:
        bar.update(300)
        assert progress.now == LoadStage(DOWNLOAD, 400, 1000, True)
        bar.total += 500  # as snapshot_download does
        bar.update(-50)
        bar.set_postfix_str("1 MB/s", refresh=False)
        bar.refresh()
    assert list(bars([1, 2], desc="Fetching 2 files")) == [1, 2]
    assert progress.now == LoadStage(DOWNLOAD, 350, 1500, True)
    assert capsys.readouterr() == ("", "")


def test_only_a_reported_download_asks_for_bars(tmp_path):
    assert download_options("org/model") == {}
    with reporting(LoadProgress()):
        assert "tqdm_class" in download_options("org/model")
        assert download_options(str(tmp_path)) == {}

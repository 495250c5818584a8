"""KuaiRec from tiny files in the official column layout: users as contexts, items as actions, random scores."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from s2bl_cli.contract.logs.reading import LogArrays, open_logs
from s2bl_cli.datasets import kuairec
from s2bl_cli.datasets.interactions import InteractionData, Interactions
from s2bl_cli.datasets.settings import DatasetSettings
from s2bl_cli.errors import InputFileError
from s2bl_cli.logging_policy.random_scores import draw_pairs, pair_probabilities

USER_COLUMNS = (
    "user_id,user_active_degree,is_lowactive_period,is_live_streamer,is_video_author,follow_user_num,"
    "follow_user_num_range,fans_user_num,fans_user_num_range,friend_user_num,friend_user_num_range,register_days,"
    "register_days_range," + ",".join(f"onehot_feat{i}" for i in range(18))
)
MATRIX_COLUMNS = "user_id,video_id,play_duration,video_duration,time,date,timestamp,watch_ratio"

ZEROS = ",".join("0" * 17)
USERS = [  # user 2 has a gap in onehot_feat17
    f'7,full_active,0,0,1,5,"(0,10]",1,"[1,10)",0,0,107,61-90,{ZEROS},3',
    f'2,high_active,0,0,1,386,"(250,500]",4,"[1,10)",2,"[1,5)",327,181-365,{ZEROS},',
    f'5,full_active,0,0,0,27,"(10,50]",0,0,0,0,116,91-180,{ZEROS},12',
]
# Users 2 and 7 have watched; 2 has both sorts, 7 only the unrewarded one.
BIG = [(7, 400, 1.99), (2, 400, 2.0), (2, 100, 0.5), (2, 300, 3.5), (2, 100, 0.7), (7, 100, 0.0)]
# User 5 has watched two videos with a reward, one of them (200) not in the big matrix; user 2 has one.
SMALL = [(5, 200, 2.5), (5, 300, 9), (2, 200, 0.1)]


def matrix(pairs: list[tuple[int, int, float]]) -> str:
    rows = (f"{u},{v},4381,6067,2020-07-05 05:27:48.378,20200705,1593898068.378,{w}" for u, v, w in pairs)
    return "\n".join([MATRIX_COLUMNS, *rows]) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = tmp_path / "KuaiRec" / "data"
    data.mkdir(parents=True)
    (data / "user_features.csv").write_text("\n".join([USER_COLUMNS, *USERS]) + "\n")
    (data / "big_matrix.csv").write_text(matrix(BIG))
    (data / "small_matrix.csv").write_text(matrix(SMALL))
    return data


def load(folder: Path, **settings: Any) -> InteractionData:
    root = folder.parent.parent
    return kuairec.load(DatasetSettings(dataset="kuairec", data_dir=str(root), **settings))


def refusal(folder: Path, **settings: Any) -> str:
    with pytest.raises(InputFileError) as caught:
        load(folder, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(folder), "DATA")


# --- reading ---


def test_contexts_by_hand(folder: Path) -> None:
    """Users in the order 2, 5, 7. Counts that also exist as ranges are ignored; levels are in alphabetical order."""
    features = load(folder).features
    by_hand = {
        "active degree: full, high": [[0, 1], [1, 0], [1, 0]],
        "lowactive: 0": [[1], [1], [1]],
        "live streamer: 0": [[1], [1], [1]],
        "video author: 0, 1": [[0, 1], [1, 0], [0, 1]],
        "follow: (0,10], (10,50], (250,500]": [[0, 0, 1], [0, 1, 0], [1, 0, 0]],
        "fans: 0, [1,10)": [[0, 1], [1, 0], [0, 1]],
        "friends: 0, [1,5)": [[0, 1], [1, 0], [1, 0]],
        "registered: 181-365, 61-90, 91-180": [[1, 0, 0], [0, 0, 1], [0, 1, 0]],
        "feats 0 to 16: 0": [[1] * 17] * 3,
        "feat 17: 12, 3": [[0, 0], [1, 0], [0, 1]],
    }
    assert features.dtype == np.float32
    assert features.tolist() == np.concatenate(list(by_hand.values()), axis=1).tolist()


def test_items_and_rewards_by_hand(folder: Path) -> None:
    """Items 100, 200, 300, 400 are the actions 0 to 3. A video watched twice counts with its largest watch ratio."""
    data = load(folder)
    assert data.actions == 4
    assert data.train.users.tolist() == [0, 2]
    assert data.train.start.tolist() == [0, 3, 5]
    assert data.train.item.tolist() == [0, 2, 3, 0, 3]
    assert data.train.rewarded.tolist() == [False, True, True, False, False]
    assert data.test.users.tolist() == [0, 1]
    assert data.test.start.tolist() == [0, 1, 3]
    assert data.test.item.tolist() == [1, 1, 2]
    assert data.test.rewarded.tolist() == [False, True, True]
    assert data.notes == (
        "3 users with 35 one-hot features, 4 items",
        "40.0% of the train pairs have a watch ratio of at least 2",
    )


def test_watch_ratio_is_the_threshold(folder: Path) -> None:
    assert load(folder, watch_ratio=0.7).train.rewarded.tolist() == [True, True, True, False, True]
    assert load(folder, watch_ratio=2.1).train.rewarded.tolist() == [False, True, False, False, False]


@pytest.mark.parametrize("subfolder", ["KuaiRec 2.0/data", "KuaiRec", "data", "."])
def test_other_folders(folder: Path, subfolder: str) -> None:
    root = folder.parent.parent / "elsewhere"
    (root / subfolder).mkdir(parents=True)
    for file in folder.iterdir():
        file.rename(root / subfolder / file.name)
    assert kuairec.load(DatasetSettings(dataset="kuairec", data_dir=str(root))).actions == 4


def test_missing_files(folder: Path) -> None:
    (folder / "small_matrix.csv").unlink()
    root = folder.parent.parent
    expected = (
        f"KuaiRec is not in {root}, which must contain KuaiRec/data/ with user_features.csv, big_matrix.csv, "
        "small_matrix.csv: {}download it by hand from its authors' page, kuairec.com, or give its folder with "
        "--data-dir FOLDER"
    )
    assert refusal(folder) == expected.format("")
    assert refusal(folder, download=True) == expected.format("--download does not support it; ")


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("big_matrix.csv", "", "DATA/big_matrix.csv is not the official file (empty CSV): download it again"),
        ("user_features.csv", "", "DATA/user_features.csv is not the official file (empty CSV): download it again"),
        ("big_matrix.csv", MATRIX_COLUMNS + "\n", "DATA/big_matrix.csv has no rows: download it again"),
        ("user_features.csv", USER_COLUMNS + "\n", "DATA/user_features.csv has no rows: download it again"),
        (
            "small_matrix.csv",
            matrix(SMALL).replace("watch_ratio", "ratio"),
            "DATA/small_matrix.csv is not the official file (",
        ),
        (
            "user_features.csv",
            "user,x\n1,2\n",
            "DATA/user_features.csv must have a column 'user_id' of integers: download the official file",
        ),
        (
            "user_features.csv",
            "user_id,x\nanna,2\n",
            "DATA/user_features.csv must have a column 'user_id' of integers: download the official file",
        ),
        (
            "user_features.csv",
            "user_id\n2\n5\n7\n",
            "DATA/user_features.csv must have feature columns in addition to 'user_id': download the official file",
        ),
        (
            "user_features.csv",
            "user_id,x\n2,1\n2,1\n",
            "DATA/user_features.csv must have one row per user, found a user_id twice: download it again",
        ),
        (
            "big_matrix.csv",
            matrix([*BIG, (6, 100, 1.0)]),
            "DATA/big_matrix.csv: user 6 is not in user_features.csv: download both files again",
        ),
        (
            "small_matrix.csv",
            matrix([*SMALL, (99, 100, 1.0)]),
            "DATA/small_matrix.csv: user 99 is not in user_features.csv: download both files again",
        ),
        (
            "big_matrix.csv",
            matrix(BIG).replace(",0.5", ",long"),
            "DATA/big_matrix.csv: column 'watch_ratio' must be numeric: download the official file",
        ),
        (
            "big_matrix.csv",
            matrix(BIG).replace(",0.5", ","),
            "DATA/big_matrix.csv: columns user_id, video_id, watch_ratio must not have missing values: "
            "download the official file",
        ),
        (
            "big_matrix.csv",
            matrix(BIG).replace(",0.5", ",NaN"),
            "DATA/big_matrix.csv: columns user_id, video_id, watch_ratio must not have missing values: "
            "download the official file",
        ),
        ("big_matrix.csv", "\x00\x01\x02\n", "DATA/big_matrix.csv is not the official file ("),
    ],
)
def test_files_that_are_not_the_official_ones(folder: Path, file: str, content: str, expected: str) -> None:
    (folder / file).write_text(content)
    assert refusal(folder).startswith(expected)


@pytest.mark.parametrize("share", [0.35, 0.6, 0.95, 0.999])
@pytest.mark.parametrize("file", ["user_features.csv", "big_matrix.csv", "small_matrix.csv"])
def test_every_truncated_file_is_named(folder: Path, file: str, share: float) -> None:
    """At any position: part of a number is a number, and part of a word is a category."""
    whole = (folder / file).read_bytes()
    (folder / file).write_bytes(whole[: int(len(whole) * share)])
    assert refusal(folder) == f"DATA/{file} is truncated: its last line has no line break: download it again"


# --- random scores ---


def pairs_of(*users: list[bool]) -> Interactions:
    """Users with these numbers of items, rewarded or not."""
    counts = [len(user) for user in users]
    return Interactions(
        users=np.arange(len(users)),
        start=np.concatenate([[0], np.cumsum(counts)]),
        item=np.concatenate([np.arange(count) for count in counts]).astype(np.int32),
        rewarded=np.array([rewarded for user in users for rewarded in user]),
    )


PAIRS = pairs_of([True, False, False], [True, True], [False], [False, True, False, True, True])


def test_probabilities_are_shared_seven_to_three() -> None:
    probability = pair_probabilities(PAIRS, np.random.default_rng(0)).astype(np.float64)
    user = np.repeat(np.arange(4), np.diff(PAIRS.start))
    assert np.allclose(np.bincount(user, probability), 1, atol=1e-6)
    rewarded = np.bincount(user, probability * PAIRS.rewarded)
    assert np.allclose(rewarded, [0.7, 1, 0, 0.7], atol=1e-6)  # users with one kind of items: their share is 1


def test_probabilities_are_proportional_to_the_scores() -> None:
    """By hand: a user's rewarded items 0.7·s/Σs with the scores that the generator gives."""
    score = np.random.default_rng(5).uniform(0.001, 1, len(PAIRS.item))
    probability = pair_probabilities(PAIRS, np.random.default_rng(5))
    assert probability[0] == pytest.approx(0.7, rel=1e-6)
    assert probability[1] == pytest.approx(0.3 * score[1] / (score[1] + score[2]), rel=1e-6)
    assert probability[3] == pytest.approx(score[3] / (score[3] + score[4]), rel=1e-6)
    assert probability[5] == 1
    assert probability[9] == pytest.approx(0.7 * score[9] / (score[7] + score[9] + score[10]), rel=1e-6)


def test_draws_follow_the_probabilities() -> None:
    """χ² of 2, 1, 0 and 4 degrees of freedom, 7 in total: above 24.3 once in a thousand times."""
    rng = np.random.default_rng(1)
    probability = pair_probabilities(PAIRS, rng)
    draws = 10_000
    chosen = draw_pairs(PAIRS, probability, draws, rng).reshape(4, draws)
    for user in range(4):
        assert (PAIRS.start[user] <= chosen[user]).all()
        assert (chosen[user] < PAIRS.start[user + 1]).all()
    expected = draws * probability.astype(np.float64)
    counts = np.bincount(chosen.ravel(), minlength=len(PAIRS.item))
    assert ((counts - expected) ** 2 / expected).sum() < 24.3


# --- the log ---


@pytest.fixture
def make(run: Callable[..., Any], folder: Path, tmp_path: Path) -> Callable[..., LogArrays]:
    def made(*flags: object) -> LogArrays:
        ran = run("make-logs", "--dataset", "kuairec", "--data-dir", tmp_path, *flags, "--force", "-o", "made.parquet")
        assert ran.code == 0, ran.stderr
        assert "warning" not in ran.stderr
        with open_logs([str(tmp_path / "made.parquet")]) as log:
            return log.read()

    return made


def test_log(make: Callable[..., LogArrays], folder: Path) -> None:
    data = load(folder)
    log = make("--draws", 40, "--store-distribution")
    assert log.rows == 2 * 40 + 2 * 40
    assert log.is_test.tolist() == [False] * 80 + [True] * 80
    users = np.repeat([0, 2, 0, 1], 40)
    assert np.array_equal(log.context, data.features[users])
    assert log.pi0 is not None
    assert log.label is None
    assert np.allclose(log.pi0.sum(axis=1), 1, atol=1e-6)
    assert np.array_equal(log.propensity, log.pi0[np.arange(160), log.action])
    assert log.known.all()
    assert log.cluster is not None
    assert log.cluster.tolist() == users.tolist()  # the same number in both splits
    met = {0: [0, 2, 3], 40: [0, 3], 80: [1], 120: [1, 2]}  # by the user's first row
    rewarded = {0: [2, 3], 40: [], 80: [], 120: [1, 2]}
    for first, items in met.items():
        rows = slice(first, first + 40)
        assert (log.pi0[rows] == log.pi0[first]).all()
        assert np.flatnonzero(log.pi0[first]).tolist() == items
        assert set(log.action[rows].tolist()) <= set(items)
        assert np.array_equal(log.cost[rows], np.where(np.isin(log.action[rows], rewarded[first]), -1, 0))
    assert log.pi0[0, [2, 3]].sum() == pytest.approx(0.7, abs=1e-6)
    with open_logs([str(folder.parent.parent / "made.parquet")]) as opened:
        assert opened.spec.action_names == ("100", "200", "300", "400")  # the videos


def test_storing_the_distribution_changes_nothing_else(make: Callable[..., LogArrays]) -> None:
    with_pi0, without = make("--store-distribution"), make()
    assert without.pi0 is None
    assert without.rows == 4 * 5
    assert np.array_equal(with_pi0.action, without.action)
    assert np.array_equal(with_pi0.propensity, without.propensity)


def test_seed_decides(make: Callable[..., LogArrays]) -> None:
    first, again, other = make("--seed", 1), make("--seed", 1), make("--seed", 2)
    assert np.array_equal(first.propensity, again.propensity)
    assert not np.array_equal(first.propensity, other.propensity)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--tau", 2), "--tau"),
        (("--logging-model", "mlp"), "--logging-model"),
        (("--adverse",), "--adverse"),
        (("--uniform", 0.1), "--uniform"),
        (("--cost", "-1"), "--cost"),
        (("--cost-noise", 0.1), "--cost-noise"),
        (("--epochs", 3), "--epochs"),
        (("--save-policy", "p.safetensors"), "--save-policy"),
    ],
)
def test_options_that_do_not_apply_are_rejected(
    run: Callable[..., Any], folder: Path, tmp_path: Path, flags: tuple[object, ...], named: str
) -> None:
    ran = run("make-logs", "--dataset", "kuairec", "--data-dir", tmp_path, *flags, "--quiet", "-o", "x.parquet")
    assert ran.code == 2
    assert ran.stderr == (
        f"s2bl: {named} does not apply to kuairec, whose log is drawn with random scores and not from a fitted policy: "
        "remove it\n"
    )
    assert not (tmp_path / "x.parquet").exists()


def test_features_do_not_apply(run: Callable[..., Any], folder: Path, tmp_path: Path) -> None:
    ran = run("make-logs", "--dataset", "kuairec", "--data-dir", tmp_path, "--features", "resnet18", "-o", "x.parquet")
    assert (ran.code, ran.stderr) == (
        2,
        "s2bl: --features needs a dataset of images, but kuairec has none: remove --features\n",
    )

"""The paper's data sets, ready for a model: features, labels and sensitive attributes of the same rows."""

from evenhand.paper.datasets._fetch import DataError
from evenhand.paper.datasets.adult import load_adult
from evenhand.paper.datasets.celeba import CelebA, load_celeba
from evenhand.paper.datasets.compas import fetch_compas
from evenhand.paper.datasets.dataset import Dataset, Split
from evenhand.paper.datasets.zafar import ZafarDataset, make_zafar

__all__ = [
    "CelebA",
    "DataError",
    "Dataset",
    "Split",
    "ZafarDataset",
    "fetch_compas",
    "load_adult",
    "load_celeba",
    "make_zafar",
]

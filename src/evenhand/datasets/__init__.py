"""The paper's data sets, ready for a model: features, labels and sensitive attributes of the same rows."""

from evenhand.datasets._fetch import DataError
from evenhand.datasets.adult import load_adult
from evenhand.datasets.celeba import CelebA, load_celeba
from evenhand.datasets.compas import fetch_compas
from evenhand.datasets.dataset import Dataset, Split
from evenhand.datasets.zafar import ZafarDataset, make_zafar

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

"""The paper's data sets, ready for a model: features, labels and sensitive attributes of the same rows."""

from evenhand.paper.datasets import (
    CelebA,
    DataError,
    Dataset,
    Split,
    ZafarDataset,
    fetch_compas,
    load_adult,
    load_celeba,
    make_zafar,
)

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

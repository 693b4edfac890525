"""What a MONAI user has before meeting ranp: real scans as dictionaries, a U-Net, a loss."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from monai.data import DataLoader, Dataset
from monai.losses import DiceCELoss
from monai.networks.nets import UNet
from monai.transforms import Compose, ConcatItemsd, Lambdad, LoadImaged, RandCropByPosNegLabeld, Spacingd

NAMES = ["flair", "t1c", "label"]
FILES = ("Flair_subtrMeanDivStd", "T1c_subtrMeanDivStd", "OTMultiClass")
loss = DiceCELoss(to_onehot_y=True, softmax=True)


def model() -> torch.nn.Module:
    return UNet(3, in_channels=2, out_channels=2, channels=(16, 32, 64), strides=(2, 2), num_res_units=1, norm="batch")


def volumes() -> list[dict[str, torch.Tensor]]:
    read = Compose(
        [
            LoadImaged(NAMES, ensure_channel_first=True),
            Spacingd(NAMES, pixdim=(3, 3, 3), mode=("bilinear", "bilinear", "nearest")),
            ConcatItemsd(["flair", "t1c"], "image"),
            Lambdad("label", lambda label: (label > 0).float()),
        ]
    )
    cases = sorted(Path(os.environ["BRATS"]).iterdir())[:3]
    return [
        read({name: str(case / f"{file}.nii.gz") for name, file in zip(NAMES, FILES, strict=True)}) for case in cases
    ]


def loader(cases: list[dict[str, torch.Tensor]]) -> DataLoader:
    keys = ["image", "label"]
    crops = RandCropByPosNegLabeld(keys, label_key="label", spatial_size=(32, 32, 32), num_samples=2)
    return DataLoader(Dataset([{key: case[key] for key in keys} for case in cases], crops), batch_size=1, shuffle=True)

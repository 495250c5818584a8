"""Settings of the pre-trained features. Importing this module imports nothing heavy."""

from dataclasses import dataclass, replace

from s2bl_cli.errors import SettingError
from s2bl_cli.settings import Between, check_settings, setting

IMAGE_SIZE = {"cpu": 96, "gpu": 224}  # networks are trained at 224; 96 is a fifth of the work, for CPUs


@dataclass(frozen=True)
class FeatureSettings:
    """Which network computes the features of the images, if any."""

    features: str | None = setting(
        None,
        "Replace images by the features of this torchvision network, such as mobilenet_v2",
        metavar="NETWORK",
    )
    weights: str | None = setting(
        None, "Weights of the network, a .pth file (default: the official ones in torch's cache)",
        recorded=False, metavar="FILE",
    )  # fmt: skip
    image_size: int | None = setting(
        None,
        f"Side length in pixels of the resized images (default: {IMAGE_SIZE['gpu']}; on a CPU: {IMAGE_SIZE['cpu']})",
        rule=Between(8, 1024),
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.features is None and (self.weights is not None or self.image_size is not None):
            raise SettingError(
                "--weights and --image-size need --features: name the network, such as --features mobilenet_v2"
            )

    def resolved(self, device: str) -> "FeatureSettings":
        """The settings with the default image size of this device filled in, for the lineage."""
        if self.features is None or self.image_size is not None:
            return self
        return replace(self, image_size=IMAGE_SIZE["cpu" if device == "cpu" else "gpu"])

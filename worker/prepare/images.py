"""Images as the model's processor makes them: preprocessor_config.json, and pixels by pillow.

An image is turned as its EXIF says, resized, and cut to its middle (black where it is smaller), as
transformers' processors of ViT (and Swin, which has it) and DeiT do it by pillow. What is left are
bytes, [height, width, channels]; what the model reads of them is another number for each byte of
each channel, by a table of these (`values`), which is bit for bit what the processor computes: (x *
factor - mean) / std, in float32 after the product.

Where images are augmented, what crops are taken from is kept beside that: the image, turned, not
cut and not resized, but for one whose longer side is above MAX_ORIGINAL of the model's, which is
made as small as that. So it takes at most four times the bytes of what the model reads.
"""

import dataclasses
import io
import os
import struct

from errors import PrepareError, bad_row
from files import given

FILE = "preprocessor_config.json"
FORMATS = ("JPEG", "PNG", "WEBP")
READ_BYTES = 1 << 16
MAX_PIXELS = 1 << 26  # Of a file: 67 million, as a camera's; more is a bomb, or no training data.
MAX_SIDE = 8192  # Of what it is resized to.
MAX_ORIGINAL = 2  # Sides of the model's image.
MODES = {1: "L", 3: "RGB"}
# By model_type: tokens that are no patches, and the patches' size where config.json is silent.
MODELS = {"vit": (1, 16), "deit": (2, 16), "swin": (0, 4)}
BYTES = 256

# What transformers' classes assume where the file is silent.
COMMON = {
    "do_resize": True,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
VIT = {**COMMON, "size": 224, "resample": 2, "do_center_crop": False, "crop_size": 224}
DEIT = {**COMMON, "size": 256, "resample": 3, "do_center_crop": True, "crop_size": 224}
PROCESSORS = {"ViT": VIT, "DeiT": DEIT}
ENDINGS = ("ImageProcessor", "ImageProcessorFast", "ImageProcessorPil", "FeatureExtractor")
KINDS = {name + ending: known for name, known in PROCESSORS.items() for ending in ENDINGS}


@dataclasses.dataclass
class Original:
    """What crops are taken from: bytes [height, width, channels]."""

    pixels: bytes
    width: int


class Images:
    """What a model makes of images.

    keeps_originals   whether crops will be taken from them
    """

    def __init__(self, model, config, processor):
        self._model = model
        self.keeps_originals = False
        self.side = _side(config.get("image_size", 224))
        self.channels = config.get("num_channels", 3)
        special, patch = MODELS[config["model_type"]]
        patch = _side(config.get("patch_size", patch))
        if not all(type(n) is int and n > 0 for n in (self.side, patch)) or patch > self.side:
            raise model.bad("config.json", '"image_size" and "patch_size" must be numbers')
        if self.channels not in MODES:
            raise model.bad("config.json", '"num_channels" must be 1 or 3')
        self.tokens = (self.side // patch) ** 2 + special
        if processor is None:
            raise model.bad(FILE, "no such file; it says how images are resized and normalised")
        self._read(processor)

    def _read(self, processor):
        kind = processor.get("image_processor_type") or processor.get("feature_extractor_type")
        if kind not in KINDS:
            known = ", ".join(f"{name}ImageProcessor" for name in PROCESSORS)
            raise self._wrong("image_processor_type", kind, f"one of {known}")
        known = KINDS[kind]
        said = {key: processor.get(key) for key in known}
        said = {key: known[key] if value is None else value for key, value in said.items()}
        if processor.get("do_pad"):
            raise self._wrong("do_pad", processor["do_pad"], "false")
        self._resize = self._size("size", said["size"]) if said["do_resize"] is True else None
        self._resample = said["resample"]
        if self._resample not in range(6):
            raise self._wrong("resample", self._resample, "a number of pillow's, 0 to 5")
        self._crop = None
        if said["do_center_crop"] is True:
            self._crop = self._size("crop_size", said["crop_size"])
            if "shortest_edge" in self._crop:
                raise self._wrong("crop_size", said["crop_size"], "a height and a width")
        last = self._crop or self._resize
        if last is not None and last.get("height", self.side) != self.side:
            raise self._wrong("size", last, f"the model's image_size, {self.side}")
        self.values = self._values(said)

    def _wrong(self, field, value, accepted):
        return self._model.bad(FILE, f'"{field}" is {value!r}; accepted: {accepted}')

    def _size(self, field, value):
        """{"height", "width"} or {"shortest_edge"}."""
        if type(value) is int:
            value = {"height": value, "width": value}
        known = isinstance(value, dict) and set(value) in (
            {"height", "width"},
            {"shortest_edge"},
        )
        if known and all(type(n) is int and 1 <= n <= MAX_SIDE for n in value.values()):
            return value
        accepted = f'"height" and "width", or "shortest_edge", of 1 to {MAX_SIDE}'
        raise self._wrong(field, value, accepted)

    def _values(self, said):
        """[channel][byte], float32."""
        means = self._channels("image_mean", said["image_mean"])
        deviations = self._channels("image_std", said["image_std"])
        if not all(deviations):
            raise self._wrong("image_std", said["image_std"], "numbers other than 0")
        factor = said["rescale_factor"]
        if type(factor) not in (int, float):
            raise self._wrong("rescale_factor", factor, "a number")
        table = []
        for mean, deviation in zip(means, deviations):
            values = [_float32(n * factor if said["do_rescale"] else n) for n in range(BYTES)]
            if said["do_normalize"]:
                values = [_float32(_float32(v - mean) / deviation) for v in values]
            table.append(values)
        return table

    def _channels(self, field, value):
        values = value if isinstance(value, list) else [value] * self.channels
        if len(values) == self.channels and all(type(v) in (int, float) for v in values):
            return [_float32(v) for v in values]
        raise self._wrong(field, value, f"{self.channels} numbers")

    def read(self, row):
        """(bytes that the model reads of the row's image, Original or None); bad_row where it has
        none."""
        image = self._open(row)
        return self._pixels(row, image), self._original(image) if self.keeps_originals else None

    def _open(self, row):
        import PIL.Image
        import PIL.ImageOps

        PIL.Image.MAX_IMAGE_PIXELS = None  # Ours is looked at before an image is unpacked.
        try:
            of_table = isinstance(row.source, bytes)
            file = io.BytesIO(row.source) if of_table else given.open_file(row.source, READ_BYTES)
            with file, PIL.Image.open(file, formats=FORMATS) as image:
                width, height = image.size
                if width * height > MAX_PIXELS:
                    message = f"has {width} x {height} pixels; at most {MAX_PIXELS} are read"
                    raise bad_row(row, message)
                return PIL.ImageOps.exif_transpose(image).convert(MODES[self.channels])
        except (OSError, ValueError, SyntaxError) as error:
            kinds = ", ".join(FORMATS)
            raise bad_row(row, f"cannot be read as an image ({kinds}): {error}") from error

    def _original(self, image):
        import PIL.Image

        most, longer = MAX_ORIGINAL * self.side, max(image.size)
        if longer > most:
            size = [max(round(length * most / longer), 1) for length in image.size]
            image = image.resize(size, resample=PIL.Image.Resampling.BILINEAR)
        return Original(image.tobytes(), image.size[0])

    def _pixels(self, row, image):
        if self._resize is not None:
            image = image.resize(self._resized(image), resample=self._resample)
        if self._crop is not None:
            image = _middle(image, self.side)
        if image.size != (self.side, self.side):
            width, height = image.size
            message = f"is {width} x {height} pixels, the model reads {self.side} x {self.side}"
            raise bad_row(row, f'{message} ("size" and "crop_size" in {FILE})')
        return image.tobytes()

    def _resized(self, image):
        edge = self._resize.get("shortest_edge")
        if edge is None:
            return self._resize["width"], self._resize["height"]
        width, height = image.size
        if width <= height:
            return edge, int(edge * height / width)
        return int(edge * width / height), edge


def _middle(image, side):
    """As center_crop of transformers' image_transforms."""
    width, height = image.size
    if width < side or height < side:
        import PIL.Image

        padded = PIL.Image.new(image.mode, (max(width, side), max(height, side)))
        left, top = -((width - padded.size[0]) // 2), -((height - padded.size[1]) // 2)
        padded.paste(image, (left, top))
        image = padded
        # It cuts by the sizes before, as far as these reach.
        cut_left = max((width - side) // 2 + left, 0)
        cut_top = max((height - side) // 2 + top, 0)
        return image.crop((cut_left, cut_top, cut_left + side, cut_top + side))
    left, top = (width - side) // 2, (height - side) // 2
    return image.crop((left, top, left + side, top + side))


def _side(value):
    """A number, or a list of two that are the same."""
    if isinstance(value, list) and len(value) == 2 and value[0] == value[1]:
        return value[0]
    return value


def _float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


# ---- files of a folder --------------------------------------------------------------------------

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
MAX_FILES = 1_000_000  # Of a folder.


def holds_tables(folder, endings):
    """Whether it has no image, and has files that end so."""
    tables = False
    for path in given.names_below(folder):
        if path.lower().endswith(SUFFIXES):
            return False
        tables = tables or path.lower().endswith(endings)
    return tables


def files_of(folder, split_words, split=""):
    """Paths of a split's images, in order. Where all folders in it are named after splits they are
    these, else it is the split "train"."""
    found = sorted(p for p in given.names_below(folder) if p.lower().endswith(SUFFIXES))
    inner = sorted({path.split(os.sep)[0] for path in found if os.sep in path})
    splits = {_split_of(name, split_words): name for name in inner}
    if None in splits or not splits:
        splits = {"train": ""}
    name = split or ("train" if "train" in splits or len(splits) != 1 else next(iter(splits)))
    if name not in splits:
        message = f'has no split "{name}"; there are: {", ".join(sorted(splits))}'
        raise PrepareError("BAD_DATASET", message, field="dataset_split", file=folder)
    top = os.path.join(splits[name], "")
    inside = [path[len(top) :] for path in found if path.startswith(top)]
    return _of_classes(os.path.join(folder, splits[name]), inside)


def _split_of(name, split_words):
    return next((split for split, words in split_words.items() if name.lower() in words), None)


def _of_classes(folder, images):
    """Their paths; `images`: those from the folder."""
    for path in images:
        if os.sep not in path:
            message = "lies in no class's folder: a dataset of images has one for each class"
            raise PrepareError("BAD_DATASET", message, file=os.path.join(folder, path))
    if len(images) > MAX_FILES:
        message = f"holds more than {MAX_FILES} images"
        raise PrepareError("BAD_DATASET", message, file=folder)
    if not images:
        message = "holds no image (" + ", ".join(SUFFIXES) + ") in a folder of its class"
        raise PrepareError("BAD_DATASET", message, file=folder)
    return [os.path.join(folder, path) for path in images]

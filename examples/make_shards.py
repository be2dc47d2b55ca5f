"""A data set as webdataset shards of JPEGs, which `vitral train imagenet --data webdataset:FOLDER` reads.

python examples/make_shards.py digits shards --pictures 200 --shard 100
"""

import argparse
import io
import tarfile
from pathlib import Path

from vitral.config import DataConfig
from vitral.data.datasets import open_data

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("data", nargs="?", default="digits", help="a name from `vitral data list`, or folder:PATH")
parser.add_argument("out", nargs="?", default="shards", type=Path)
parser.add_argument("--pictures", type=int, default=200, help="of each split, at most")
parser.add_argument("--shard", type=int, default=100, help="pictures of one tar file")
asked = parser.parse_args()
data = open_data(DataConfig(name=asked.data))
asked.out.mkdir(parents=True, exist_ok=True)
(asked.out / "classes.txt").write_text("\n".join(data.class_names) + "\n")
for name, split in (("train", data.train), ("val", data.validation), ("test", data.test())):
    chosen = split.first(min(asked.pictures, len(split)), 0)
    for begin in range(0, len(chosen), asked.shard):
        with tarfile.open(asked.out / f"{name}-{begin // asked.shard:06d}.tar", "w") as shard:
            for place in range(begin, min(begin + asked.shard, len(chosen))):
                picture = io.BytesIO()
                chosen.picture(place).convert("RGB").save(picture, "JPEG", quality=95)
                for ending, content in (("jpg", picture.getvalue()), ("cls", str(int(chosen.labels[place])).encode())):
                    member = tarfile.TarInfo(f"{place:08d}.{ending}")
                    member.size = len(content)
                    shard.addfile(member, io.BytesIO(content))
print(*sorted(asked.out.glob("*.tar")), sep="\n")

"""A data set as webdataset shards of JPEGs, which `vitral train imagenet --data webdataset:FOLDER` reads.

python examples/make_shards.py DATA FOLDER PICTURES-OF-EACH-SPLIT PICTURES-OF-A-SHARD
"""

import io
import sys
import tarfile
from pathlib import Path

from vitral.config import DataConfig
from vitral.data.splits.open import open_data

name, folder, most, size = sys.argv[1:] or ("digits", "shards", "200", "100")
data, out = open_data(DataConfig(name=name)), Path(folder)
out.mkdir(parents=True, exist_ok=True)
(out / "classes.txt").write_text("\n".join(data.class_names) + "\n")
for part, split in (("train", data.train), ("val", data.validation), ("test", data.test())):
    chosen = split.balanced_subset(min(int(most), len(split)), 0)
    for begin in range(0, len(chosen), int(size)):
        with tarfile.open(out / f"{part}-{begin // int(size):06d}.tar", "w") as shard:
            for place in range(begin, min(begin + int(size), len(chosen))):
                chosen.picture(place).convert("RGB").save(picture := io.BytesIO(), "JPEG", quality=95)
                for ending, content in (("jpg", picture.getvalue()), ("cls", b"%d" % int(chosen.labels[place]))):
                    member = tarfile.TarInfo(f"{place:08d}.{ending}")
                    member.size = len(content)
                    shard.addfile(member, io.BytesIO(content))
print(*sorted(out.glob("*.tar")), sep="\n")

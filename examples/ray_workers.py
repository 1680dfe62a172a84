"""Workers that Ray places and starts again, one a machine; `pip install ray`, settings in each one's environment."""

import subprocess
import sys

import ray


@ray.remote(num_cpus=1, max_retries=-1, scheduling_strategy="SPREAD")
def work() -> None:
    subprocess.run([sys.executable, "-m", "app", "work", "--until-empty"], check=True)


if __name__ == "__main__":
    ray.init("auto")
    ray.get([work.remote() for node in ray.nodes() if node["Alive"]])

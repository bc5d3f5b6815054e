"""The package of opicflow: the folders of this repository, installed below the namespace `opicflow`."""

from pathlib import Path

from setuptools import find_packages, setup

ROOTS = ["pipelines", "schemas", "connectors"]
FOLDERS = find_packages(include=[pattern for root in ROOTS for pattern in (root, f"{root}.*")])

setup(
    name="opicflow",
    version="0.2.0.dev0",
    description="How important each page of a crawl is, computed while the crawl runs (Adaptive OPIC)",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Internet :: WWW/HTTP :: Indexing/Search",
        "Typing :: Typed",
    ],
    keywords="crawling pagerank opic link-analysis",
    # `opicflow` itself has no folder and no __init__: it is a namespace.
    # A new package below one of the roots needs no entry here.
    packages=[f"opicflow.{folder}" for folder in FOLDERS],
    package_dir={f"opicflow.{folder}": folder.replace(".", "/") for folder in FOLDERS},
    package_data={
        "": ["py.typed", "*.proto"],
        "opicflow.schemas": ["published/*.avsc"],
        "opicflow.pipelines.serve": ["templates/*.html", "static/*"],
    },
    zip_safe=False,
    python_requires=">=3.10,<3.14",
    install_requires=[
        "ada-url>=1.15",  # URLs by the WHATWG's standard
        # The pipelines. It brings fastavro, orjson, pyarrow, requests and zstandard, used here too.
        "apache-beam>=2.77,<2.78",  # private parts are used: CONTRIBUTING.md#versions
        "argcomplete>=3.5",  # completes commands and options in the shell
        "crc32c>=2.7",  # without it kafka-python computes checksums in Python
        "fastavro>=1.9",
        "jinja2>=3.1",  # the pages of reports and of `opicflow serve`
        "kafka-python>=3.0.12,<3.1",  # private parts are used
        "lz4>=4.0",  # what topics are compressed with
        "numba>=0.61,<0.69",  # private parts are used
        "numpy>=1.22.4",
        "orjson>=3.9.7",
        "publicsuffixlist>=1.0",  # registrable domains, its list included
        "pyarrow>=14",  # Parquet
        "requests>=2.28",  # the schema registry
        "rich>=13.7",  # tables and progress bars on a terminal
        "rich-argparse>=1.6",  # help in colour on a terminal
        "tomli>=2.0 ; python_version < '3.11'",  # opicflow.toml; later Pythons read TOML themselves
        "xxhash>=3.0",
        "zstandard>=0.18",
    ],
    entry_points={
        "console_scripts": [
            "opicflow = opicflow.pipelines.cli.start:main",
            "opicflow-worker = opicflow.pipelines.cli.start:worker",
        ]
    },
    extras_require={
        "scrapy": ["scrapy>=2.19"],  # the add-on for its spiders
        "serve": ["starlette>=0.46", "uvicorn>=0.34"],  # `opicflow serve`
        "msk": ["botocore>=1.34"],  # signs logins at Amazon MSK (AWS_MSK_IAM)
        "lab": ["matplotlib>=3.8"],  # draws the plots of `opicflow experiment`
        "urlfrontier": ["grpcio-tools>=1.62"],  # makes the messages of `opicflow push`, and brings grpcio and protobuf
        "dev": [
            "build>=1.2.1",
            "confluent-kafka>=2.6",  # runs a program of docs/guides/subscribe.md
            "duckdb>=1.1",  # runs the queries of docs/guides/replay.md
            "flask>=3",  # with moto, a server that speaks S3, for snapshots
            "flask-cors>=5",
            "grpcio-tools>=1.62",
            "hypothesis>=6.100",
            "import-linter>=2.5",
            "matplotlib>=3.8",
            "moto>=5.1",
            "py-partiql-parser>=0.6",  # which its S3 needs
            "mypy>=1.15",
            "pytest>=8.4",
            "pytest-xdist>=3.6",  # runs the tests on two cores
            "pyyaml>=6",  # reads the files of deploy/kubernetes
            "ruff>=0.12",
            "scipy>=1.11",  # computes optima to compare our own with
            "scrapy>=2.19",
            "selectolax>=0.3.21",  # finds links to compare our own reading with
            "setuptools>=77.0.1",
            "starlette>=0.46",
            "uv>=0.5",  # installs the packages
            "uvicorn>=0.34",
        ],
    },
)

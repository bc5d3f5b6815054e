"""The add-on: it puts the scheduler and the recorder of visits into a project's settings."""

from __future__ import annotations

import sys
from pathlib import Path

from scrapy.settings import BaseSettings

from opicflow.pipelines.crawl.scrapy.frontier_scheduler import FrontierScheduler
from opicflow.pipelines.crawl.scrapy.middlewares import CallbackMiddleware, VisitRecorder

_NEAREST_TO_THE_ENGINE = 10
"""Of the downloader middlewares it gets what all others have made of an answer or a failure; of those of the spider it
gets an answer first, so that a callback is noted also if another one fails before it."""
_TRIALS = {"shell", "parse", "check", "bench", "fetch", "view"}


class Addon:
    """Add opicflow to every spider of a project: `ADDONS = {"opicflow.pipelines.crawl.scrapy.Addon": 500}`.

    The setting OPICFLOW_FOLDER names the folder of the frontiers, `opicflow` by default: each spider has one there.
    With OPICFLOW_BROKERS (and OPICFLOW_PROPERTIES, OPICFLOW_PREFIX) visits are sent to Kafka, too.
    """

    def update_settings(self, settings: BaseSettings) -> None:
        """Use the scheduler, the recorder of visits, and the middleware that reports when a callback begins.

        Commands of Scrapy that try a spider record nothing.
        """
        if _command() in _TRIALS:
            return
        settings.set("SCHEDULER", FrontierScheduler, "addon")
        settings.setdefault("OPICFLOW_FOLDER", "opicflow", "addon")
        settings["DOWNLOADER_MIDDLEWARES"].set(VisitRecorder, _NEAREST_TO_THE_ENGINE, "addon")
        settings["SPIDER_MIDDLEWARES"].set(CallbackMiddleware, _NEAREST_TO_THE_ENGINE, "addon")


def _command() -> str:
    """Return the command of Scrapy that runs; nothing in a program of its own."""
    words = iter(sys.orig_argv)  # Scrapy takes the command from sys.argv
    is_scrapy = any(Path(word).stem == "scrapy" for word in words)
    return next((word for word in words if is_scrapy and not word.startswith("-")), "")

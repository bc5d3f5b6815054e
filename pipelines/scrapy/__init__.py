"""A Scrapy add-on: a crawl writes its visits, and reads pages in the order of a frontier.

ADDONS = {"opicflow.pipelines.scrapy.Addon": 500}
"""

from opicflow.pipelines.scrapy.addon import Addon

__all__ = ["Addon"]

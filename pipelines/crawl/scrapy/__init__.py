"""A Scrapy add-on: a crawl writes its visits, and reads pages in the order of a frontier.

ADDONS = {"opicflow.pipelines.crawl.scrapy.Addon": 500}
"""

from opicflow.pipelines.crawl.scrapy.addon import Addon

__all__ = ["Addon"]

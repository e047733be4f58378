"""Attempt folders: what an emit attempt is told and what it wrote. No Spark, no PostgreSQL."""

"""Forecasts: arrivals by hour from the tables of the pipeline, played through the simulator of what-if.

``history`` reads how many messages came in each hour, ``seasons`` models them, ``backtest`` measures the model's error
on recent days that it has not seen. ``traffic`` turns an expected hour into messages, ``staffing`` plays them, and
``forecast`` joins all of it. No step needs a Spark session.
"""

-- What refers to a topology follows it where it is renamed (R23).
ALTER TABLE txbatch.state DROP CONSTRAINT state_topology_fkey,
    ADD CONSTRAINT state_topology_fkey FOREIGN KEY (topology) REFERENCES txbatch.topology ON UPDATE CASCADE;
ALTER TABLE txbatch.batch DROP CONSTRAINT batch_topology_fkey,
    ADD CONSTRAINT batch_topology_fkey FOREIGN KEY (topology) REFERENCES txbatch.topology ON UPDATE CASCADE;
ALTER TABLE txbatch.consumed DROP CONSTRAINT consumed_topology_fkey,
    ADD CONSTRAINT consumed_topology_fkey FOREIGN KEY (topology) REFERENCES txbatch.topology ON UPDATE CASCADE;
ALTER TABLE txbatch.waiting DROP CONSTRAINT waiting_topology_fkey,
    ADD CONSTRAINT waiting_topology_fkey FOREIGN KEY (topology) REFERENCES txbatch.topology ON UPDATE CASCADE;
ALTER TABLE txbatch.change DROP CONSTRAINT change_topology_fkey,
    ADD CONSTRAINT change_topology_fkey FOREIGN KEY (topology) REFERENCES txbatch.topology ON UPDATE CASCADE;
ALTER TABLE txbatch.rebuild DROP CONSTRAINT rebuild_topology_fkey,
    ADD CONSTRAINT rebuild_topology_fkey FOREIGN KEY (topology) REFERENCES txbatch.topology ON UPDATE CASCADE;
ALTER TABLE txbatch.batch_key DROP CONSTRAINT batch_key_topology_txid_fkey,
    ADD CONSTRAINT batch_key_topology_txid_fkey FOREIGN KEY (topology, txid) REFERENCES txbatch.batch ON UPDATE CASCADE;
ALTER TABLE txbatch.attempt DROP CONSTRAINT attempt_topology_txid_fkey,
    ADD CONSTRAINT attempt_topology_txid_fkey FOREIGN KEY (topology, txid) REFERENCES txbatch.batch ON UPDATE CASCADE;
ALTER TABLE txbatch.partition DROP CONSTRAINT partition_topology_txid_fkey,
    ADD CONSTRAINT partition_topology_txid_fkey FOREIGN KEY (topology, txid) REFERENCES txbatch.batch ON UPDATE CASCADE;
